"""A running heartbeat receiver for the tests, and foreign clients: stubs that grpcio-tools generates from the proto."""

import importlib.util
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import grpc
from grpc_tools import protoc

import otel_zernel_libraries.cluster
from otel_zernel.clock import Clock
from otel_zernel.component import Context, Emit, Extension
from otel_zernel.testing import ImpatientClock, make_context, until
from otel_zernel.types import Address
from otel_zernel_libraries.cluster.messages import Heartbeat
from otel_zernel_libraries.serving.api.server import ApiServer
from otel_zernel_libraries.serving.http2 import Peer
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.sender import WorkerSender
from tests.background import in_background

PROTO = Path(otel_zernel_libraries.cluster.__file__).parent / "cluster.proto"
SENDER = WorkerSender(Peer("10.0.0.7"))
"""A client without credentials, whose connection is open."""


@cache
def generated() -> tuple[ModuleType, ModuleType]:
    """The modules `cluster_pb2` and `cluster_pb2_grpc` of protoc, as a user of the proto gets them."""
    folder = mkdtemp(prefix="cluster-")
    arguments = [f"-I{PROTO.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}", str(PROTO)]
    assert protoc.main(["protoc", *arguments]) == 0
    modules = []
    for name in ("cluster_pb2", "cluster_pb2_grpc"):
        spec = importlib.util.spec_from_file_location(name, f"{folder}/{name}.py")
        assert spec
        assert spec.loader
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        modules.append(module)
    return modules[0], modules[1]


def heartbeat(worker_id: str = "worker-1", cpu: float = 50.0, tasks: int = 0, **more: float) -> Any:
    """A heartbeat of the generated class."""
    messages, _ = generated()
    running = [
        messages.RunningTask(
            task_id=f"task-{n}", cpu_allocated=2, memory_allocated=1024, gpu_allocated=1, status="running"
        )
        for n in range(tasks)
    ]
    return messages.Heartbeat(worker_id=worker_id, cpu_usage=cpu, running_tasks=running, **more)


def registration(worker_id: str = "worker-1", **more: Any) -> Any:
    """A registration of the generated class."""
    messages, _ = generated()
    return messages.WorkerInfo(worker_id=worker_id, worker_ip="10.0.0.7", **more)


class Stream:
    """A stream that may close."""

    closed = False


def fleet_of(clock: Clock, **options: Any) -> Fleet:
    """A fleet without a server."""
    return Fleet(HeartbeatReceiver.Config.model_validate(options), clock)


def beat(
    fleet: Fleet, worker_id: str = "w", sender: WorkerSender = SENDER, stream: Stream | None = None, **usages: float
) -> bool:
    """Whether the fleet accepts a heartbeat."""
    return fleet.beat(Heartbeat(worker_id=worker_id, **usages).SerializeToString(), sender, stream)


@asynccontextmanager
async def mastering(
    emit: Emit,
    *,
    api: ApiServer | None = None,
    extensions: Mapping[str, Extension] | None = None,
    context: Context | None = None,
    **options: Any,
) -> AsyncIterator[HeartbeatReceiver]:
    """A receiver that listens. Leaving stops it."""
    settings = {"endpoint": "localhost:0", "collection_interval": "50ms", "push_interval": "20ms", **options}
    if api:
        settings["api"] = "api"
    config = HeartbeatReceiver.Config.model_validate(settings)
    served: dict[str, Extension] = {**(extensions or {}), **({"api": api} if api else {})}
    context = context or make_context("receivers", "heartbeat", clock=ImpatientClock(), extensions=served)
    receiver = HeartbeatReceiver(config, context)
    async with in_background(receiver.run(emit)) as running:
        await until(lambda: running.done() or receiver.address)
        if running.done():
            await running
        yield receiver


@asynccontextmanager
async def connected_to(address: Address) -> AsyncIterator[Any]:
    """The generated stub of a client with a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"{address.host}:{address.port}", options=options) as channel:
        yield generated()[1].MasterWorkerStub(channel)


@asynccontextmanager
async def connected(receiver: HeartbeatReceiver) -> AsyncIterator[Any]:
    """The same for a receiver of the test."""
    assert receiver.address
    async with connected_to(receiver.address) as stub:
        yield stub
