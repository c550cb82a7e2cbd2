"""One worker: its last heartbeat, its registration, and the heartbeats that wait to be emitted."""

import json
from collections import deque
from typing import Any, Literal, NamedTuple, Protocol

from otel_zernel.otlp.points import encode_resource
from otel_zernel_receivers.heartbeat.fleet.sender import WorkerSender


class TaskState(NamedTuple):
    """A task that runs on a worker. The names are those of the JSON."""

    task_id: str
    cpu_allocated: float
    memory_allocated: float
    gpu_allocated: float
    status: str


class WorkerSample(NamedTuple):
    """The usages in one heartbeat, as ratios, and its time in ns since 1970."""

    time_ns: int
    cpu: float
    memory: float
    storage: float
    gpu: float
    tasks: int


class Capacities(NamedTuple):
    """What a worker has registered."""

    worker_ip: str
    total_cpu: float
    total_memory: float
    total_storage: float
    total_gpu: float


class Closable(Protocol):
    """A stream of a worker."""

    closed: bool


class Worker:
    """The state of a worker. Usages are in per cent, as in heartbeats."""

    __slots__ = (
        "_registration",
        "active",
        "capacities",
        "cpu",
        "entry",
        "gpu",
        "id",
        "key",
        "last_seen",
        "memory",
        "owner",
        "resource",
        "samples",
        "seen_ns",
        "stale",
        "storage",
        "stream",
        "tasks",
        "tasks_json",
    )

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.key = json.dumps(id_, ensure_ascii=False)
        """The id as JSON."""
        self.capacities: Capacities | None = None
        self.cpu = self.memory = self.storage = self.gpu = 0.0
        self.tasks: tuple[TaskState, ...] = ()
        self.tasks_json = "[]"
        self.active = False
        """Whether a heartbeat arrived within `inactive_after`."""
        self.last_seen = 0.0
        """The last heartbeat or registration, on the monotonic clock in s."""
        self.seen_ns = 0
        """The last heartbeat in ns since 1970; 0 before the first one."""
        self.samples: deque[WorkerSample] = deque()
        self.stale = False
        """Whether the series of its usages have to be ended at the next emission."""
        self.owner: WorkerSender | None = None
        """The client that may send for the worker. None before its first message."""
        self.stream: Closable | None = None
        """The stream of its last heartbeat; None after a call."""
        self.entry = b""
        """The worker in the JSON of all: its key, a colon, its telemetry."""
        self.resource = b""
        self.describe()
        self.encode()

    @property
    def state(self) -> Literal["active", "unknown", "inactive"]:
        """`unknown` if its connection is closed, but it is not silent for long."""
        if not self.active:
            return "inactive"
        return "unknown" if self.stream and self.stream.closed else "active"

    @property
    def telemetry(self) -> bytes:
        """The worker as JSON."""
        return self.entry[len(self.key.encode()) + 1 :]

    @property
    def last_update(self) -> int:
        """The time of the last heartbeat in s since 1970."""
        return self.seen_ns // 1_000_000_000

    def describe(self) -> None:
        """Encodes what the worker has registered: the resource of its metrics, and a part of the list."""
        attributes = {"zernel.worker.id": self.id, "host.name": self.id}
        ip = self.capacities.worker_ip if self.capacities else ""
        self.resource = encode_resource({**attributes, **({"host.ip": [ip]} if ip else {})})
        about = self.capacities._asdict() if self.capacities else {}
        self._registration = "".join(
            f'"{name}":{json.dumps(value, ensure_ascii=False)},' for name, value in about.items()
        )

    def set_tasks(self, tasks: tuple[TaskState, ...]) -> None:
        if tasks != self.tasks:
            self.tasks = tasks
            self.tasks_json = json.dumps([task._asdict() for task in tasks], ensure_ascii=False, separators=(",", ":"))

    def encode(self) -> None:
        """Encodes the JSON after a change. `repr` of a finite number is JSON."""
        self.entry = (
            f'{self.key}:{{"worker_id":{self.key},"cpu_usage":{self.cpu!r},"memory_usage":{self.memory!r},'
            f'"gpu_usage":{self.gpu!r},"running_tasks":{self.tasks_json},"last_update":{self.last_update},'
            f'"is_active":{"true" if self.active else "false"}}}'
        ).encode()

    @property
    def listed(self) -> bytes:
        """`described` as JSON, several times as fast."""
        return (
            f'{{"worker_id":{self.key},{self._registration}"is_active":{"true" if self.active else "false"},'
            f'"state":"{self.state}","last_update":{self.last_update},"running_tasks":{len(self.tasks)}}}'
        ).encode()

    def described(self) -> dict[str, Any]:
        """The worker for a list: its registration and state."""
        about = self.capacities._asdict() if self.capacities else {}
        return {
            "worker_id": self.id,
            **about,
            "is_active": self.active,
            "state": self.state,
            "last_update": self.last_update,
            "running_tasks": len(self.tasks),
        }

    def usages(self) -> dict[str, Any]:
        """The usages of the last heartbeat, in per cent."""
        return {
            "worker_id": self.id,
            "cpu_usage": self.cpu,
            "memory_usage": self.memory,
            "storage_usage": self.storage,
            "gpu_usage": self.gpu,
            "last_update": self.last_update,
            "is_active": self.active,
        }
