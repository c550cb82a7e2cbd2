"""Messages of any bytes: a code that says why, and a state that stays within its bounds."""

import json
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_zernel.testing import Downstream, FakeClock
from otel_zernel_libraries.cluster.messages import STREAM_HEARTBEATS as STREAM
from otel_zernel_libraries.cluster.messages import Heartbeat, RunningTask, WorkerInfo
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.emission import batch_of, points_of
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.http.body import all_telemetry
from tests.api_server import FakeApiServer
from tests.receivers.heartbeat.workers import SENDER, connected, heartbeat, mastering

numbers = st.floats()
tasks = st.builds(
    RunningTask,
    task_id=st.text(max_size=300),
    cpu_allocated=numbers,
    memory_allocated=numbers,
    gpu_allocated=numbers,
    status=st.text(max_size=100),
)
heartbeats = st.builds(
    Heartbeat,
    worker_id=st.text(max_size=300),
    cpu_usage=numbers,
    memory_usage=numbers,
    storage_usage=numbers,
    gpu_usage=numbers,
    running_tasks=st.lists(tasks, max_size=4),
)
registrations = st.builds(
    WorkerInfo,
    worker_id=st.text(max_size=300),
    worker_ip=st.text(max_size=300),
    total_cpu=numbers,
    total_memory=numbers,
    total_storage=numbers,
    total_gpu=numbers,
)
encoded = st.one_of(st.binary(max_size=60), heartbeats.map(lambda one: one.SerializeToString()))
registered = st.one_of(st.binary(max_size=60), registrations.map(lambda one: one.SerializeToString()))


@settings(deadline=None)
@given(st.lists(st.one_of(encoded.map(lambda m: ("beat", m)), registered.map(lambda m: ("register", m))), max_size=30))
def test_any_messages_leave_valid_json_valid_points_and_few_workers(messages: list[tuple[str, bytes]]) -> None:
    fleet = Fleet(HeartbeatReceiver.Config.model_validate({"max_workers": 5, "max_tasks": 2}), FakeClock())
    for method, message in messages:
        try:
            getattr(fleet, method)(message, SENDER)
        except RequestFailure as failure:
            assert failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]  # noqa: PT017  # any message may be valid
    assert len(fleet.workers) <= 5
    assert set(json.loads(b"".join(all_telemetry(fleet, FakeClock()).pieces()), parse_constant=pytest.fail)) == set(
        fleet.workers
    )
    for worker in fleet.workers.values():
        json.dumps([worker.described(), worker.usages()], allow_nan=False)
        assert len(json.loads(worker.telemetry)["running_tasks"]) <= 2
    batch = batch_of([points_of(worker, 1) for worker in fleet.workers.values()])
    assert len(batch.metrics.resource_metrics) == len(fleet.workers)


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\xff", b"\x0a\x02\xff\xfe", b"garbage" * 100])
async def test_bytes_that_are_no_heartbeat_end_the_call_and_not_the_server(message: bytes) -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver:
        assert receiver.address
        async with grpc.aio.insecure_channel(f"localhost:{receiver.address.port}") as channel:
            for method in ("RegisterWorker", "SendHeartbeat"):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await channel.unary_unary(f"/cluster.MasterWorker/{method}", None, None)(message)
                assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            opened: Any = channel.stream_stream(STREAM, None, None)
            stream = opened()
            await stream.write(message)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stream.read()
            assert ended.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        async with connected(receiver) as stub:
            assert (await stub.SendHeartbeat(heartbeat())).success
        assert list((await api.get("/telemetry")).json) == ["worker-1"]


async def test_a_message_beyond_its_limit_is_refused_before_it_is_read() -> None:
    async with mastering(Downstream()) as receiver, connected(receiver) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendHeartbeat(heartbeat("x" * (2 << 20)))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as bomb:  # 4 MiB of zeros in a few kB
            await stub.SendHeartbeat(heartbeat("x" * (4 << 20)), compression=grpc.Compression.Gzip)
        assert bomb.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.SendHeartbeat(heartbeat())).success


async def test_a_stream_that_never_reads_its_answers_delays_nobody() -> None:
    async with mastering(Downstream()) as receiver, connected(receiver) as stub:
        silent = stub.StreamHeartbeats()
        for _ in range(2000):
            await silent.write(heartbeat("silent"))
        assert (await stub.SendHeartbeat(heartbeat("other"))).success
        silent.cancel()
