"""OTLP over gRPC: what is accepted arrives as it was sent, and every other request gets the documented code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import zstandard
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from otel_zernel.batch import Signal
from otel_zernel_libraries.serving.http2.wire import DATA, END_STREAM, frame
from otel_zernel_receivers.otlp import OtlpReceiver
from otel_zernel_receivers.otlp.grpc.server import SERVICES
from tests.receivers.otlp.http2.raw import REQUEST_HEADERS, connected, opening
from tests.receivers.otlp.serving import Recording, call, gauge, receiving


@asynccontextmanager
async def channel_to(receiver: OtlpReceiver, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(str(receiver.addresses["grpc"]), **options) as channel:
        yield channel


async def export(channel: grpc.aio.Channel, signal: Signal, request: bytes, **options: Any) -> bytes:
    return bytes(await call(channel, signal)(request, **options))


async def failure(receiver: OtlpReceiver, request: bytes, signal: Signal = "metrics", **options: Any) -> Any:
    async with channel_to(receiver) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(channel, signal, request, **options)
    return refused.value


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_over_the_limit_is_resource_exhausted_also_when_it_is_small_on_the_wire(
    compression: grpc.Compression,
) -> None:
    downstream = Recording()
    async with receiving(downstream, {"grpc": {"endpoint": "localhost:0", "max_recv_msg_size_mib": 1}}) as receiver:
        error = await failure(receiver, bytes((1 << 20) + 1), compression=compression)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        async with channel_to(receiver) as channel:
            await export(
                channel, "metrics", gauge(4000).SerializeToString()[: 1 << 20] and gauge(2).SerializeToString()
            )
    assert downstream.point_count == 2


async def test_an_unknown_method_is_unimplemented() -> None:
    async with receiving(Recording()) as receiver, channel_to(receiver) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(f"/{SERVICES['metrics']}/Import", None, None)(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_unix_socket_serves_and_disappears(tmp_path: Path) -> None:
    path, downstream = tmp_path / "otlp.sock", Recording()
    protocols = {"grpc": {"endpoint": str(path), "transport": "unix"}}
    async with receiving(downstream, protocols), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        await export(channel, "metrics", gauge().SerializeToString())
    assert downstream.point_count == 3
    assert not path.exists()


async def test_load_balancers_see_the_health_of_the_server_and_of_its_services() -> None:
    async with receiving(Recording(), signals=frozenset({"traces"})) as receiver, channel_to(receiver) as channel:
        stub = HealthStub(channel)
        for service in ("", SERVICES["traces"]):
            assert (await stub.Check(HealthCheckRequest(service=service))).status == HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.Check(HealthCheckRequest(service=SERVICES["metrics"]))
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(HealthCheckRequest(service="other"))
        assert (await watch.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def test_a_stopping_server_says_that_it_serves_no_more() -> None:
    async with receiving(Recording()) as receiver:
        channel = grpc.aio.insecure_channel(str(receiver.addresses["grpc"]))
        watch = HealthStub(channel).Watch(HealthCheckRequest())
        assert (await watch.read()).status == HealthCheckResponse.SERVING
    assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
    await channel.close(None)


async def test_reflection_describes_the_services() -> None:
    async with receiving(Recording()) as receiver:
        described = await asyncio.to_thread(_describe, str(receiver.addresses["grpc"]))
    assert set(SERVICES.values()) <= set(described["services"])
    assert described["method"] == "Export"
    assert described["input"] == "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest"


def _describe(target: str) -> dict[str, Any]:
    with grpc.insecure_channel(target) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        method = pool.FindServiceByName(SERVICES["metrics"]).methods[0]
        return {"services": database.get_services(), "method": method.name, "input": method.input_type.full_name}


async def test_zstd_is_accepted_and_an_unknown_compression_is_unimplemented() -> None:
    downstream, request = Recording(), gauge(2000).SerializeToString()
    compressed = zstandard.ZstdCompressor().compress(request)
    async with receiving(downstream) as receiver:
        for name, expected in (("zstd", 0), ("identity", 13), ("br", 12)):
            async with connected(receiver) as client:
                headers = [*REQUEST_HEADERS, ("grpc-encoding", name)]
                body = b"\x01" + len(compressed).to_bytes(4) + compressed
                await client.send(opening(1, headers), frame(DATA, END_STREAM, 1, body))
                assert await client.status(1) == expected
    assert [batch.bytes_of("metrics") for batch in downstream.batches] == [request]
