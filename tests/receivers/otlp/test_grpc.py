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
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.errors import CannotStart, Refused, Rejected
from otel_zernel.testing import until
from otel_zernel_libraries.serving.http2.wire import DATA, END_STREAM, frame
from otel_zernel_receivers.otlp import OtlpReceiver
from otel_zernel_receivers.otlp.grpc.server import SERVICES
from tests.receivers.otlp.http2.raw import REQUEST_HEADERS, connected, opening
from tests.receivers.otlp.serving import REQUESTS, Recording, call, gauge, receiving


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


def retry_after(error: Any) -> float:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = Status.FromString(details)
    info = RetryInfo()
    assert status.code == error.code().value[0]
    assert status.details[0].Unpack(info)
    return float(info.retry_delay.seconds)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
async def test_the_received_bytes_are_forwarded(signal: Signal, compression: grpc.Compression) -> None:
    downstream, request = Recording(), REQUESTS[signal].SerializeToString()
    async with receiving(downstream) as receiver, channel_to(receiver) as channel:
        assert await export(channel, signal, request, compression=compression) == b""
    assert [batch.bytes_of(signal) for batch in downstream.batches] == [request]
    assert downstream.transports == ["grpc"]


@pytest.mark.parametrize("signal", SIGNALS)
async def test_an_empty_request_is_a_success_and_goes_nowhere(signal: Signal) -> None:
    downstream = Recording()
    async with receiving(downstream) as receiver, channel_to(receiver) as channel:
        assert await export(channel, signal, b"") == b""
    assert downstream.batches == []


@pytest.mark.parametrize(("after", "seconds"), [(None, 1), (0.2, 1), (7.5, 8)])
async def test_a_refused_request_is_unavailable_and_says_when_to_try_again(after: float | None, seconds: int) -> None:
    async def refuse(batch: Batch, *, transport: str = "") -> None:
        raise Refused("sending queue is full: otlp", after)

    async with receiving(refuse) as receiver:
        error = await failure(receiver, gauge().SerializeToString())
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "sending queue is full: otlp")
    assert retry_after(error) == seconds


async def test_a_rejected_request_is_internal_and_must_not_be_repeated() -> None:
    async def reject(batch: Batch, *, transport: str = "") -> None:
        raise Rejected("an exporter without a queue dropped the batch")

    async with receiving(reject) as receiver:
        error = await failure(receiver, gauge().SerializeToString())
    assert error.code() == grpc.StatusCode.INTERNAL
    assert "an exporter without a queue dropped the batch" in error.details()
    assert "grpc-status-details-bin" not in dict(error.trailing_metadata())


async def test_an_undecodable_request_is_internal() -> None:
    async with receiving(Recording()) as receiver:
        error = await failure(receiver, b"\xff\xff\xff")
    assert error.code() == grpc.StatusCode.INTERNAL
    assert "not a valid OTLP message" in error.details()


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


async def test_a_signal_that_no_pipeline_uses_is_unimplemented() -> None:
    async with receiving(Recording(), signals=frozenset({"metrics"})) as receiver:
        error = await failure(receiver, b"", "traces")
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert error.details() == "no pipeline with this otlp receiver uses traces; add the receiver to a traces pipeline"


async def test_an_unknown_method_is_unimplemented() -> None:
    async with receiving(Recording()) as receiver, channel_to(receiver) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(f"/{SERVICES['metrics']}/Import", None, None)(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_requests_beyond_the_room_are_unavailable_until_there_is_room_again() -> None:
    request, open_ = gauge(2000).SerializeToString(), asyncio.Event()
    downstream = Recording()

    async def slow(batch: Batch, *, transport: str = "") -> None:
        await open_.wait()
        await downstream(batch, transport=transport)

    async with receiving(slow, max_in_flight_mib=1) as receiver, channel_to(receiver) as channel:
        calls = [asyncio.create_task(export(channel, "metrics", request)) for _ in range(4)]
        done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = next(iter(done)).exception()
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert "max_in_flight_mib (1 MiB)" in (error.details() or "")
        open_.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        await export(channel, "metrics", request)
    assert len(downstream.batches) == 1 + outcomes.count(b"") >= 2


async def test_a_second_server_on_the_port_is_an_error_that_names_the_key() -> None:
    async with receiving(Recording(), {"grpc": {"endpoint": "localhost:0"}}) as receiver:
        place = str(receiver.addresses["grpc"])
        with pytest.raises(
            CannotStart, match=r"receivers::otlp::protocols::grpc::endpoint: .* another program has this port"
        ):
            async with receiving(Recording(), {"grpc": {"endpoint": place}}):
                pass


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


async def test_a_request_that_runs_when_the_receiver_stops_is_answered_ok_only_if_it_was_accepted() -> None:
    accepted: list[int] = []
    entered: list[int] = []
    stopping = asyncio.Event()

    async def slow(batch: Batch, *, transport: str = "") -> None:
        entered.append(batch.point_count)
        await (stopping if batch.point_count == 1 else asyncio.Event()).wait()
        accepted.append(batch.point_count)

    async with receiving(slow) as receiver:
        channel = grpc.aio.insecure_channel(str(receiver.addresses["grpc"]))
        short = asyncio.create_task(export(channel, "metrics", gauge(1).SerializeToString()))
        long = asyncio.create_task(export(channel, "metrics", gauge(2).SerializeToString()))
        await until(lambda: len(entered) == 2)
        stopping.set()  # the short request goes on after the stop began, as nothing here awaits
    assert await short == b""
    with pytest.raises(grpc.aio.AioRpcError) as cut:
        await long
    assert cut.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert accepted == [1]
    await channel.close(None)


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
