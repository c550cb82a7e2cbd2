"""The service `cluster.MasterWorker`, with the client that protoc generates."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from otel_zernel.clock import SystemClock
from otel_zernel.errors import CannotStart
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from tests.api_server import FakeApiServer
from tests.otlp import rows_in
from tests.receivers.heartbeat.workers import connected, generated, heartbeat, mastering, registration

TOKEN = "correct-horse"


def named(downstream: Downstream, name: str) -> list[float]:
    """The values of a metric in all batches."""
    rows = (row for batch in downstream.batches for row in rows_in(batch.metrics) if row.metric.name == name)
    return [row.value for row in rows if row.value is not None]


async def test_a_worker_registers_beats_by_call_and_by_stream_and_is_emitted_as_metrics() -> None:
    downstream = Downstream()
    async with mastering(downstream) as receiver, connected(receiver) as stub:
        assert (await stub.RegisterWorker(registration(total_cpu=8, total_memory=2**34, total_gpu=4))).success
        assert (await stub.SendHeartbeat(heartbeat(cpu=25, memory_usage=50, gpu_usage=75, tasks=2))).success
        stream = stub.StreamHeartbeats()
        for cpu in (30, 35, 40):
            await stream.write(heartbeat(cpu=cpu, gpu_usage=80))
            assert (await stream.read()).success
        await stream.done_writing()
        assert await stream.code() == grpc.StatusCode.OK
        await until(lambda: 0.4 in named(downstream, "system.cpu.utilization"))
    assert named(downstream, "system.cpu.utilization") == [0.25, 0.3, 0.35, 0.4]
    assert named(downstream, "system.memory.utilization")[0] == 0.5
    assert named(downstream, "zernel.worker.gpu.utilization") == [0.75, 0.8, 0.8, 0.8]
    assert named(downstream, "zernel.worker.running_tasks")[0] == 2
    assert set(named(downstream, "zernel.worker.active")) == {1}
    assert set(named(downstream, "system.cpu.logical.count")) == {8}
    assert set(named(downstream, "system.memory.limit")) == {2**34}
    resource = downstream.batches[-1].metrics.resource_metrics[0].resource
    assert {attribute.key for attribute in resource.attributes} == {"zernel.worker.id", "host.name", "host.ip"}


async def test_thousands_of_heartbeats_on_one_stream_are_all_answered_and_the_latest_wins() -> None:
    downstream, count = Downstream(), 3000
    async with mastering(downstream, api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:

        async def beats() -> AsyncIterator[Any]:
            for number in range(count):
                yield heartbeat(cpu=number % 100)

        answers = [ack.success async for ack in stub.StreamHeartbeats(beats())]
        assert answers == [True] * count
        assert (await api.get("/telemetry/worker-1")).json["cpu_usage"] == (count - 1) % 100


async def test_a_stream_of_many_questions_and_answers_goes_on_although_its_client_pings() -> None:
    """gRPC's clients measure the bandwidth by pings, and those of a stream never see the end of a call."""
    async with mastering(Downstream()) as receiver, connected(receiver) as stub:
        stream = stub.StreamHeartbeats()
        for cpu in range(500):
            await stream.write(heartbeat(cpu=cpu % 100, tasks=100))
            assert (await stream.read()).success


async def test_a_full_queue_drops_the_oldest_heartbeats_and_counts_them() -> None:
    downstream = Downstream()
    context = make_context("receivers", "heartbeat", clock=SystemClock())
    running = mastering(downstream, context=context, queue_size=3, collection_interval="2s")
    async with running as receiver, connected(receiver) as stub:
        for cpu in range(10):
            await stub.SendHeartbeat(heartbeat(cpu=cpu))
        await until(lambda: named(downstream, "system.cpu.utilization"))
        counts = receiver.context.drop.counts  # type: ignore[attr-defined]
        await until(lambda: counts["queue_full"] == 7)
    assert named(downstream, "system.cpu.utilization") == [0.07, 0.08, 0.09]


async def test_unknown_workers_are_refused_by_policy_until_they_register() -> None:
    async with mastering(Downstream(), unknown_workers="refuse") as receiver, connected(receiver) as stub:
        assert not (await stub.SendHeartbeat(heartbeat())).success
        assert (await stub.RegisterWorker(registration())).success
        assert (await stub.SendHeartbeat(heartbeat())).success


async def test_more_than_max_workers_are_refused_and_counted() -> None:
    async with mastering(Downstream(), max_workers=2) as receiver, connected(receiver) as stub:
        accepted = [(await stub.SendHeartbeat(heartbeat(f"w{n}"))).success for n in range(4)]
        assert accepted == [True, True, False, False]
        counts = receiver.context.drop.counts  # type: ignore[attr-defined]
        await until(lambda: counts["too_many_workers"] == 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"worker_id": ""}, "worker_id has 0 characters"),
        ({"worker_id": "x" * 300}, "worker_id has 300 characters"),
        ({"cpu": float("nan")}, "a usage is negative or not a number"),
        ({"cpu": float("inf")}, "a usage is negative or not a number"),
        ({"cpu": -1.0}, "a usage is negative or not a number"),
    ],
)
async def test_impossible_values_are_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    async with mastering(Downstream()) as receiver, connected(receiver) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendHeartbeat(heartbeat(**changes))
        stream = stub.StreamHeartbeats()
        await stream.write(heartbeat(**changes))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
    for error in (refused.value, ended.value):
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert sentence in (error.details() or "")


async def test_tasks_beyond_max_tasks_are_dropped_and_counted() -> None:
    async with (
        mastering(Downstream(), api=(api := FakeApiServer()), max_tasks=2) as receiver,
        connected(receiver) as stub,
    ):
        await stub.SendHeartbeat(heartbeat(tasks=5))
        assert len((await api.get("/api/workers/worker-1/tasks")).json) == 2
        counts = receiver.context.drop.counts  # type: ignore[attr-defined]
        await until(lambda: counts["too_many_tasks"] == 3)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_messages_are_read_in_calls_and_streams(compression: grpc.Compression) -> None:
    async with mastering(Downstream()) as receiver, connected(receiver) as stub:
        assert (await stub.SendHeartbeat(heartbeat(tasks=50), compression=compression)).success
        stream = stub.StreamHeartbeats(compression=compression)
        await stream.write(heartbeat(tasks=50))
        assert (await stream.read()).success


async def test_health_and_reflection_describe_the_service() -> None:
    async with mastering(Downstream()) as receiver:
        assert receiver.address
        target = f"localhost:{receiver.address.port}"
        async with grpc.aio.insecure_channel(target) as channel:
            answer = await HealthStub(channel).Check(HealthCheckRequest(service="cluster.MasterWorker"))
            assert answer.status == HealthCheckResponse.SERVING

        def services() -> list[str]:
            with grpc.insecure_channel(target) as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                assert database.FindFileContainingSymbol("cluster.Heartbeat").package == "cluster"
                return list(database.get_services())

        assert "cluster.MasterWorker" in await asyncio.to_thread(services)


async def test_only_workers_with_the_token_are_accepted_in_calls_and_streams() -> None:
    context = make_context("extensions", "bearertokenauth")
    auth = BearerTokenAuthExtension(BearerTokenAuthExtension.Config.model_validate({"token": TOKEN}), context)
    options: dict[str, Any] = {"auth": {"authenticator": "auth"}, "unknown_workers": "refuse"}
    async with (
        auth,
        mastering(Downstream(), extensions={"auth": auth}, **options) as receiver,
        connected(receiver) as stub,
    ):
        for metadata in (None, [("authorization", "Bearer wrong")]):
            for call in (stub.SendHeartbeat(heartbeat(), metadata=metadata), one_by_stream(receiver, metadata)):
                with pytest.raises(grpc.RpcError) as refused:
                    await call
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        right = [("authorization", f"Bearer {TOKEN}")]
        assert (await stub.RegisterWorker(registration(), metadata=right)).success
        assert (await stub.SendHeartbeat(heartbeat(), metadata=right)).success
        assert (await one_by_stream(receiver, right)).success


async def one_by_stream(receiver: HeartbeatReceiver, metadata: Any) -> Any:
    """By the client for threads: that of asyncio reports INTERNAL if the answer precedes its heartbeat."""

    def send() -> Any:
        assert receiver.address
        with grpc.insecure_channel(f"localhost:{receiver.address.port}") as channel:
            stub = generated()[1].MasterWorkerStub(channel)
            (answer,) = stub.StreamHeartbeats(iter([heartbeat()]), metadata=metadata)
            return answer

    return await asyncio.to_thread(send)


async def test_a_taken_port_names_the_setting() -> None:
    async with mastering(Downstream()) as receiver:
        assert receiver.address
        with pytest.raises(CannotStart, match="receivers::heartbeat::endpoint: cannot listen on"):
            async with mastering(Downstream(), endpoint=f"localhost:{receiver.address.port}"):
                pass


async def test_the_state_of_the_workers_outlives_a_reload() -> None:
    api = FakeApiServer()
    async with mastering(Downstream(), api=api) as receiver, connected(receiver) as stub:
        await stub.SendHeartbeat(heartbeat())
        context = receiver.context
    async with mastering(Downstream(), api=api, context=context):
        assert (await api.get("/telemetry/worker-1")).json["is_active"]


async def test_refused_batches_are_counted() -> None:
    downstream = Downstream(refuse=1)
    async with mastering(downstream) as receiver, connected(receiver) as stub:
        await stub.SendHeartbeat(heartbeat())
        await until(lambda: downstream.batches)
        assert receiver.context.drop.counts["refused"] > 0  # type: ignore[attr-defined]
    assert downstream.point_count
