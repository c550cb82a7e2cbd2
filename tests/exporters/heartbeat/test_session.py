"""The exporter against masters that are slow, refuse, ask for credentials or speak TLS.

When heartbeats are due, and the waits between connections.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.component import Extension
from otel_zernel.errors import CannotStart, Permanent
from otel_zernel.testing import ImpatientClock, make_context, until
from otel_zernel_exporters.heartbeat import HeartbeatExporter
from otel_zernel_exporters.heartbeat.pace import LONGEST, SHORTEST, Backoff, HeartbeatPace
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_libraries.cluster.messages import (
    REGISTER_WORKER,
    SEND_HEARTBEAT,
    STREAM_HEARTBEATS,
    WORKER_TOKEN,
    HeartbeatAck,
    WorkerInfo,
)
from tests.exporters.heartbeat.test_state import metrics
from tests.exporters.otlp.certificates import Authority

KNOWN = {
    "system.memory.usage": [({"system.memory.state": "used"}, 1.0), ({"system.memory.state": "free"}, 3.0)],
}


class Master:
    """A master in this process. `methods` are those that it has."""

    def __init__(self, *methods: str) -> None:
        self.methods = methods or (REGISTER_WORKER, SEND_HEARTBEAT, STREAM_HEARTBEATS)
        self.calls: list[str] = []
        self.introductions: list[bytes] = []
        self.metadata: list[dict[str, Any]] = []
        self.accepts: Callable[[str], bool] = lambda method: True
        self.delay = 0.0

    def service(self, details: Any) -> Any:
        if details.method not in self.methods:
            return None
        if details.method == STREAM_HEARTBEATS:
            return grpc.stream_stream_rpc_method_handler(self._stream, None, HeartbeatAck.SerializeToString)

        async def answer(request: bytes, context: Any) -> Any:
            if details.method == REGISTER_WORKER:
                self.introductions.append(request)
            return await self._answer(details.method, context)

        return grpc.unary_unary_rpc_method_handler(answer, None, HeartbeatAck.SerializeToString)

    async def _answer(self, method: str, context: Any) -> Any:
        self.calls.append(method)
        self.metadata.append(dict(context.invocation_metadata()))
        await asyncio.sleep(self.delay)
        return HeartbeatAck(success=self.accepts(method))

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        async for _ in requests:
            yield await self._answer(STREAM_HEARTBEATS, context)

    def count(self, method: str) -> int:
        return self.calls.count(method)


@asynccontextmanager
async def serving(master: Master, security: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((master,))  # type: ignore[arg-type]  # it has the one method that is called
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, security) if security else server.add_insecure_port(address)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@asynccontextmanager
async def beating(
    port: int, extensions: dict[str, Extension] | None = None, **options: Any
) -> AsyncIterator[HeartbeatExporter]:
    fields = {
        "endpoint": f"127.0.0.1:{port}",
        "interval": "20ms",
        "timeout": "5s",
        "worker_id": "w",
        "tls": {"insecure": True},
        **options,
    }
    context = make_context("exporters", "heartbeat", clock=ImpatientClock(), extensions=extensions)
    async with HeartbeatExporter(HeartbeatExporter.Config.model_validate(fields), context) as exporter:
        yield exporter


def problem(exporter: HeartbeatExporter) -> str:
    return exporter.context.health.problems.get("exporters::heartbeat", "")


async def test_a_worker_registers_first_and_then_beats_on_one_stream() -> None:
    master = Master()
    async with serving(master) as port, beating(port) as exporter:
        await until(lambda: master.count(STREAM_HEARTBEATS) > 3)
        assert problem(exporter) == ""
    assert master.calls[0] == REGISTER_WORKER
    assert master.count(REGISTER_WORKER) == 1
    assert master.count(SEND_HEARTBEAT) == 0


async def test_without_streams_it_beats_by_calls() -> None:
    master = Master(REGISTER_WORKER, SEND_HEARTBEAT)
    async with serving(master) as port, beating(port):
        await until(lambda: master.count(SEND_HEARTBEAT) > 3)
    assert master.count(REGISTER_WORKER) == 1


async def test_without_a_registration_it_beats_all_the_same() -> None:
    master = Master(SEND_HEARTBEAT)
    async with serving(master) as port, beating(port):
        await until(lambda: master.count(SEND_HEARTBEAT) > 3)


async def test_a_refused_worker_says_so_and_asks_again() -> None:
    master = Master()
    master.accepts = lambda method: method != REGISTER_WORKER
    async with serving(master) as port, beating(port) as exporter:
        await until(lambda: "the master refuses the worker w; add it to the master's workers" in problem(exporter))
        master.accepts = lambda method: True
        await until(lambda: master.count(STREAM_HEARTBEATS) > 1)
        assert problem(exporter) == ""


async def test_a_master_that_forgot_the_worker_gets_a_registration() -> None:
    master = Master()
    async with serving(master) as port, beating(port):
        await until(lambda: master.count(STREAM_HEARTBEATS) > 1)
        master.accepts = lambda method: method == REGISTER_WORKER
        await until(lambda: master.count(REGISTER_WORKER) > 1)


async def test_a_slow_master_costs_its_heartbeats_and_the_next_session_has_the_latest_state() -> None:
    master = Master()
    async with serving(master) as port, beating(port, timeout="100ms") as exporter:
        await until(lambda: master.count(STREAM_HEARTBEATS) > 0)
        master.delay = 10.0
        await until(lambda: "no answer within 0.1 s" in problem(exporter) or "DEADLINE_EXCEEDED" in problem(exporter))
        master.delay = 0.0
        seen = master.count(STREAM_HEARTBEATS)
        await until(lambda: master.count(STREAM_HEARTBEATS) > seen + 1)


async def test_credentials_are_added_to_every_request() -> None:
    master = Master()
    config = BearerTokenAuthExtension.Config.model_validate({"token": "secret-7"})
    auth = BearerTokenAuthExtension(config, make_context("extensions", "bearertokenauth"))
    async with auth, serving(master) as port:
        extensions: dict[str, Extension] = {"bearertokenauth": auth}
        async with beating(port, extensions, auth={"authenticator": "bearertokenauth"}):
            await until(lambda: master.count(STREAM_HEARTBEATS) > 0)
    assert {one.get("authorization") for one in master.metadata} == {"Bearer secret-7"}


async def test_every_request_of_every_connection_has_the_same_token() -> None:
    master = Master()
    async with serving(master) as port:
        for _ in range(2):
            seen = master.count(STREAM_HEARTBEATS)
            async with beating(port):
                await until(lambda least=seen: master.count(STREAM_HEARTBEATS) > least)  # type: ignore[misc]
    (token,) = {metadata.get(WORKER_TOKEN, "") for metadata in master.metadata}
    assert len(token) == 32


async def test_mutual_tls(authority: Authority) -> None:
    server, client = authority.issue("localhost"), authority.issue("worker")
    tls = {"ca_file": authority.ca_file, "cert_file": client.cert_file, "key_file": client.key_file}
    master = Master()
    async with serving(master, server.server_credentials(authority.ca_file)) as port, beating(port, tls=tls):
        await until(lambda: master.count(STREAM_HEARTBEATS) > 0)


async def test_a_plaintext_worker_at_a_tls_master_gets_advice(authority: Authority) -> None:
    security = authority.issue("localhost").server_credentials()
    async with serving(Master(), security) as port, beating(port) as exporter:
        await until(lambda: "if it expects TLS, remove tls::insecure" in problem(exporter))


async def test_a_port_without_a_master_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with beating(1) as exporter:
        await until(lambda: "nothing listens on this port" in problem(exporter))
        await asyncio.sleep(0)
    lines = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1
    assert "127.0.0.1:1: UNAVAILABLE: nothing listens on this port" in lines[0].getMessage()


@pytest.mark.parametrize("methods", [(), (REGISTER_WORKER, SEND_HEARTBEAT)])
async def test_a_total_that_becomes_known_later_is_registered_too(methods: tuple[str, ...]) -> None:
    master = Master(*methods)
    async with serving(master) as port, beating(port) as exporter:
        await until(lambda: len(master.calls) > 3)
        assert master.count(REGISTER_WORKER) == 1
        await exporter.export(metrics({"host.name": "h"}, {"system.cpu.logical.count": [({}, 8.0)]}))
        await until(lambda: master.count(REGISTER_WORKER) == 2)
        assert WorkerInfo.FromString(master.introductions[-1]).total_cpu == 8
        seen = len(master.calls)
        await until(lambda: len(master.calls) > seen + 3)
    assert master.count(REGISTER_WORKER) == 2


async def test_the_first_heartbeat_waits_for_the_first_usage_one_interval_at_most() -> None:
    master = Master()
    async with serving(master) as port, beating(port, interval="60s") as exporter:
        for idle, user in ((1.0, 1.0), (2.0, 2.0)):
            times = [({"cpu.mode": "idle"}, idle), ({"cpu.mode": "user"}, user)]
            assert master.calls == []
            await exporter.export(metrics({"host.name": "h"}, {"system.cpu.time": times, **KNOWN}))
        await until(lambda: master.count(STREAM_HEARTBEATS))


async def test_invalid_metrics_are_dropped_and_the_heartbeats_go_on() -> None:
    async with beating(1) as exporter:
        with pytest.raises(Permanent, match="the batch is not valid OTLP"):
            await exporter.export(Batch.encoded("metrics", b"\x0a\x05damage", 1))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "required: set the server to send to, for example localhost:50051"),
        ({"endpoint": "master"}, "'master' is not a gRPC endpoint; write host:50051, http://host:50051"),
        ({"endpoint": "m:1", "tls": {"insecure_skip_verify": True}}, "gRPC for Python always verifies"),
        ({"endpoint": "m:1", "interval": "0s"}, "must be greater than 0"),
        ({"endpoint": "m:1", "worker_id": "x" * 300}, "at most 256 characters"),
    ],
)
def test_a_mistake_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        HeartbeatExporter.Config.model_validate(fields)
    assert words in str(refused.value)


async def test_a_missing_certificate_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="exporters::heartbeat::tls::ca_file: cannot read"):
        async with beating(1, tls={"ca_file": str(tmp_path / "none.pem")}):
            pass


def test_waits_double_from_1_s_to_30_s_and_start_again_after_an_answer() -> None:
    lowest, highest = Backoff(min), Backoff(max)
    assert [lowest.next() for _ in range(7)] == [1, 2, 4, 8, 15, 15, 15]
    assert [highest.next() for _ in range(7)] == [2, 4, 8, 16, 30, 30, 30]
    lowest.reset()
    assert lowest.next() == SHORTEST
    assert all(SHORTEST <= wait <= LONGEST for wait in [Backoff().next() for _ in range(100)])


def test_heartbeats_keep_their_interval_with_a_random_share() -> None:
    pace = HeartbeatPace(5.0, 0.1, 0.0, uniform=lambda low, high: high)
    assert pace.wait(0.0) == 0.0
    pace.sent(0.0)
    assert pace.wait(0.0) == pytest.approx(5.5)
    assert pace.wait(100.0) == 0.0


def test_heartbeats_that_were_due_without_a_master_are_counted_once() -> None:
    pace = HeartbeatPace(5.0, 0.0, 0.0)
    pace.sent(0.0)
    assert pace.skip(4.0) == 0
    assert pace.skip(21.0) == 3
    assert pace.skip(21.0) == 0
    assert pace.skip(26.0) == 1
