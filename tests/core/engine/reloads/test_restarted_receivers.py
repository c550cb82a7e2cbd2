"""A reload that restarts a receiver keeps its port: no client is refused meanwhile."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import yaml

from tests.free_ports import free_port
from tests.reliability.reloading import Collector, collector
from tests.waiting import wait_for


class Knocking:
    """Connects all the time, and counts its attempts and the refusals."""

    def __init__(self, port: int) -> None:
        self.attempts = self.refusals = 0
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._knock)

    def _knock(self) -> None:
        while not self._stop.is_set():
            self.attempts += 1
            try:
                socket.create_connection(("127.0.0.1", self._port), 60).close()
            except (ConnectionRefusedError, ConnectionResetError):
                self.refusals += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def configured(**receivers: object) -> str:
    pipeline = {"receivers": list(receivers), "exporters": ["debug"]}
    service = {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"metrics": pipeline}}
    return yaml.safe_dump({"receivers": receivers, "exporters": {"debug": None}, "service": service})


def http(endpoint: str, size: int = 20) -> dict[str, object]:
    return {"protocols": {"http": {"endpoint": endpoint, "max_request_body_size": size << 20}}}


def heartbeat(endpoint: str, size: int = 20) -> dict[str, object]:
    return {"endpoint": endpoint, "max_recv_msg_size_mib": size}


def change(running: Collector, text: str) -> None:
    running.configure(text)
    running.reload()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def answers(port: int) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.post(f"http://127.0.0.1:{port}/v1/metrics", content=b"", timeout=60).status_code == 415
    return False


@pytest.mark.parametrize(("id_", "receiver"), [("otlp", http), ("heartbeat", heartbeat)])
def test_no_client_is_refused_while_its_receiver_restarts(tmp_path: Path, id_: str, receiver: object) -> None:
    port = free_port()
    assert callable(receiver)
    texts = [configured(**{id_: receiver(f"127.0.0.1:{port}", size)}) for size in (1, 2)]
    with collector(tmp_path, texts[0]) as running:
        wait_for(lambda: listens(port))
        change(running, texts[1])
        with (knocking := Knocking(port)).running():
            for number in range(2):
                attempts = knocking.attempts
                change(running, texts[number % 2])
                wait_for(lambda least=attempts: knocking.attempts > least + 5)  # type: ignore[misc]
        assert running.log.count(f"restarts receivers::{id_}") == 3
        assert "cannot listen" not in running.log
    assert knocking.refusals == 0


def test_a_receiver_that_moves_gives_its_old_port_back(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    with collector(tmp_path, configured(otlp=http(f"127.0.0.1:{first}"))) as running:
        wait_for(lambda: answers(first))
        change(running, configured(otlp=http(f"127.0.0.1:{second}")))
        wait_for(lambda: answers(second))
        wait_for(lambda: not listens(first))


def test_two_receivers_exchange_their_ports(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    receivers = [{"otlp": http(f"127.0.0.1:{a}"), "otlp/b": http(f"127.0.0.1:{b}")} for a, b in (ports, ports[::-1])]
    with collector(tmp_path, configured(**receivers[0])) as running:
        wait_for(lambda: answers(ports[0]) and answers(ports[1]))
        change(running, configured(**receivers[1]))
        wait_for(lambda: answers(ports[0]) and answers(ports[1]))
        assert "cannot listen" not in running.log
