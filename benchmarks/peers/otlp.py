"""Processes around a gateway, by their roles: a sink that counts points, a sender, and an attacker.

`python -m benchmarks.peers.otlp ROLE ...` runs one.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Any

from otel_zernel.protobuf import encode_field

ATTRIBUTES = 8
IN_FLIGHT = 8
"""Requests that the sender has in flight."""
EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LARGE, SMALL = 4_000_000, 300_000
"""Bytes of hostile messages: just below the limit of 4 MiB, and below the one up to which the event loop counts."""


def request_of(points: int) -> bytes:
    """An export request with `points` points of 8 attributes."""
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

    def attributes(index: int) -> list[KeyValue]:
        values = (AnyValue(string_value=f"value-{index}-{name}") for name in range(ATTRIBUTES))
        return [KeyValue(key=f"attribute.name.{name}", value=value) for name, value in enumerate(values)]

    made = [
        pb.NumberDataPoint(as_double=index * 1.1, time_unix_nano=10**18 + index, attributes=attributes(index))
        for index in range(points)
    ]
    metric = pb.Metric(name="hw.gpu.utilization", unit="1", gauge=pb.Gauge(data_points=made))
    resource = pb.ResourceMetrics(scope_metrics=[pb.ScopeMetrics(metrics=[metric])])
    return bytes(pb.MetricsData(resource_metrics=[resource]).SerializeToString())


async def sink() -> None:
    """Counts the points that arrive. The method `/count` returns their number."""
    import grpc

    from otel_zernel.batch import Batch

    arrived = 0

    async def export(request: bytes, _: Any) -> bytes:
        nonlocal arrived
        arrived += Batch.from_bytes(metrics=request).point_count
        return b""

    async def count(_: bytes, __: Any) -> bytes:
        return str(arrived).encode()

    class Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # a plain class at run time
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            method = count if handler_call_details.method == "/sink/count" else export
            return grpc.unary_unary_rpc_method_handler(method)

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 20)])
    server.add_generic_rpc_handlers((Methods(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def send(port: int, sink_port: int, points: int, requests: int, rate: float) -> None:
    """Sends requests, and prints how many points arrived and how long requests took. Rate 0 sends at full load."""
    import grpc

    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{sink_port}") as sink_channel,
    ):
        export, count = channel.unary_unary(EXPORT, None, None), sink_channel.unary_unary("/sink/count", None, None)
        before = int(await count(b""))
        body, left, took, start = request_of(points), iter(range(requests)), [], time.monotonic()

        async def work() -> None:
            for index in left:
                due = start + index / rate if rate else time.monotonic()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await _insist(export, body)
                took.append(time.monotonic() - due)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        arrived, patience = 0, time.monotonic() + 30
        while arrived < points * requests and time.monotonic() < patience:
            arrived = int(await count(b"")) - before
            await asyncio.sleep(0.02)
    took.sort()
    at = {name: took[int(len(took) * share)] * 1e3 for name, share in (("p50", 0.5), ("p99", 0.99))}
    print(json.dumps({"points": arrived, **at}))


def hostile_messages(size: int = LARGE) -> list[bytes]:
    """Messages that are dear to check: they consist of tiny parts."""
    return [
        b"\x0a\x00" * (size // 2),  # empty resources
        encode_field(1, b"\x12\x00" * (size // 2)),  # empty scopes
        encode_field(1, encode_field(2, b"\x12\x06\x0a\x04name" * (size // 8))),  # metrics without data
        encode_field(1, encode_field(2, encode_field(2, encode_field(5, b"\x0a\x09\x11" + bytes(8)) * (size // 13)))),
    ]


async def attack(port: int) -> None:
    """Sends hostile requests until it is terminated. As many are in flight as there are messages."""
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        export, bodies = channel.unary_unary(EXPORT, None, None), hostile_messages() + hostile_messages(SMALL)

        async def work(body: bytes) -> None:
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await export(body)

        print(0, flush=True)
        await asyncio.gather(*map(work, bodies))


async def _insist(export: Any, body: bytes) -> None:
    import grpc

    while True:
        try:
            await export(body)
            return
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    role, *numbers = sys.argv[1:]
    if role == "sink":
        asyncio.run(sink())
    elif role == "attack":
        asyncio.run(attack(int(numbers[0])))
    else:
        to, behind, size, how_many = map(int, numbers[:4])
        asyncio.run(send(to, behind, size, how_many, float(numbers[4])))
