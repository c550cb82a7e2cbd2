"""A wrong endpoint, an expired token or a crashing proxy costs nothing: queues keep their batches until then."""

import json
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.testing import until
from tests.collectors import collector
from tests.exporters.otlp.collectors import send
from tests.reliability.odd_backends import answered, refused_at_first, serve_grpc
from tests.reliability.odd_http import OK, Tally, always, serve_http, status

HTTP_CODES = (302, 401, 403, 404, 405, 407, 408, 410, 415, 418, 500, 501, 599)
GRPC_CODES = ("UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "UNKNOWN", "INTERNAL", "FAILED_PRECONDITION")
REQUESTS, POINTS = 40, 80
LOGIN = status(200, "content-type: text/html", body=b"<html><title>Log in</title></html>")
PLAIN = status(400, "content-type: text/html", body=b"<title>400 The plain HTTP request was sent to HTTPS port</title>")
RETRY = {"initial_interval": "500ms", "max_interval": "1s"}


def request(number: int) -> bytes:
    data = MetricsData()
    gauge = data.resource_metrics.add().scope_metrics.add().metrics.add(name="g").gauge
    for place in range(POINTS):
        point = gauge.data_points.add(as_int=1, time_unix_nano=1)
        attribute = point.attributes.add(key="hw.id")
        attribute.value.string_value = f"{number}-{place}"
    return data.SerializeToString()


def settings(ports: Mapping[str, int], own: int, health: int, queue: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    storage = {"file_storage": {"directory": f"{folder}/storage", "create_directory": True}}
    options = {"compression": "none", "retry_on_failure": RETRY, "sending_queue": {"num_consumers": 2, **queue}}
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{own}"}}}},
        "exporters": {id_: {"endpoint": f"http://127.0.0.1:{port}", **options} for id_, port in ports.items()},
        "extensions": {**storage, "health_check": {"endpoint": f"127.0.0.1:{health}"}},
        "service": {
            "extensions": ["file_storage", "health_check"],
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": list(ports)}},
        },
    }


def problems(port: int) -> dict[str, str]:
    with urlopen(f"http://127.0.0.1:{port}/") as answer:
        return dict(json.load(answer).get("components", {}))


async def refusing(stack: AsyncExitStack) -> dict[str, int]:
    """The ports of backends that take nothing, by the ids of the exporters that send to them."""
    answers = {f"{code}": status(code, "location: http://elsewhere.example/") for code in HTTP_CODES}
    answers |= {"login": LOGIN, "plain": PLAIN}
    ports = {}
    for name, answer in answers.items():
        ports[f"otlp_http/{name}"] = await stack.enter_async_context(serve_http(always(answer), Tally()))
    for code in GRPC_CODES:
        refuse = refused_at_first(1 << 60, code)
        ports[f"otlp_grpc/{code.lower()}"] = await stack.enter_async_context(serve_grpc(refuse, Tally()))
    return ports


async def working(stack: AsyncExitStack, id_: str) -> tuple[int, Tally]:
    """The port of a backend that takes everything, and its points."""
    tally = Tally()
    if id_.startswith("otlp_http"):
        return await stack.enter_async_context(serve_http(always(OK, acknowledges=True), tally)), tally
    return await stack.enter_async_context(serve_grpc(answered(b""), tally)), tally


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["reload", "kill and restart", "reload of a queue in memory"])
async def test_every_acknowledged_point_arrives_when_the_endpoint_is_corrected(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], way: str
) -> None:
    own, health = unused_tcp_port_factory(), unused_tcp_port_factory()
    queue = {} if way.endswith("memory") else {"storage": "file_storage"}
    async with AsyncExitStack() as stack:
        wrong = await refusing(stack)
        right = {id_: await working(stack, id_) for id_ in wrong}
        before = settings(wrong, own, health, queue, tmp_path)
        after = settings({id_: port for id_, (port, _) in right.items()}, own, health, queue, tmp_path)
        async with collector(tmp_path, before, own, health) as running:
            await send(own, *map(request, range(REQUESTS)))
            longest = "until you correct this" if queue else "for at most 5 m"
            kept = f"; the data are kept {longest}; {REQUESTS * POINTS:,} metric points are waiting"
            await until(lambda: sum(kept in problem for problem in problems(health).values()) == len(wrong), within=60)
            assert running.log.count("The server does not take the data, which are kept ") == len(wrong)
            if way == "kill and restart":
                running.kill()
                await stack.enter_async_context(collector(tmp_path, after, own, health))
            else:
                (tmp_path / "config.yaml").write_text(json.dumps(after))
                running.process.send_signal(signal.SIGHUP)
            await until(
                lambda: all(len(tally.acknowledged) == REQUESTS * POINTS for _, tally in right.values()), within=60
            )
            assert "Dropped" not in running.log
