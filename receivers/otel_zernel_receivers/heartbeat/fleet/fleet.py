"""All workers: their heartbeats, their silence, and their number.

Messages are checked before they become state: every text, number and list has a bound, and each client a share of the
table.
"""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc.code_pb2 import Code

from otel_zernel.clock import Clock
from otel_zernel_libraries.cluster.messages import Heartbeat, WorkerInfo
from otel_zernel_libraries.serving.http2 import Peer
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_receivers.heartbeat.config import HeartbeatReceiverConfig
from otel_zernel_receivers.heartbeat.fleet.sender import WorkerSender
from otel_zernel_receivers.heartbeat.fleet.worker import Capacities, Closable, TaskState, Worker, WorkerSample

LONGEST_ID: Final = 256
"""Characters of the id of a worker or a task."""
_LONGEST_STATUS: Final = 64
"""Characters. A longer status is cut."""


def read_heartbeat(message: bytes) -> Any:
    """The heartbeat in an encoded message. Raises `RequestFailure` if a worker cannot have sent it."""
    heartbeat = _parsed(Heartbeat, message)
    _check_id(heartbeat.worker_id)
    usages = heartbeat.cpu_usage + heartbeat.memory_usage + heartbeat.storage_usage + heartbeat.gpu_usage
    least = min(heartbeat.cpu_usage, heartbeat.memory_usage, heartbeat.storage_usage, heartbeat.gpu_usage)
    if not math.isfinite(usages) or least < 0:
        raise invalid(f"worker {heartbeat.worker_id}: a usage is negative or not a number; send per cent")
    return heartbeat


def read_registration(message: bytes) -> tuple[str, Capacities]:
    """The id and the capacities of a worker. Raises `RequestFailure`."""
    info = _parsed(WorkerInfo, message)
    _check_id(info.worker_id)
    capacities = Capacities(
        info.worker_ip[:LONGEST_ID], info.total_cpu, info.total_memory, info.total_storage, info.total_gpu
    )
    if not all(math.isfinite(capacity) and capacity >= 0 for capacity in capacities[1:]):
        raise invalid(f"worker {info.worker_id}: a capacity is negative or not a number")
    return info.worker_id, capacities


def read_tasks(heartbeat: Any, most: int) -> tuple[TaskState, ...]:
    """The first running tasks of a heartbeat. Raises `RequestFailure` if one has an unusable number."""
    tasks = tuple(
        TaskState(
            running_task.task_id[:LONGEST_ID],
            running_task.cpu_allocated,
            running_task.memory_allocated,
            running_task.gpu_allocated,
            running_task.status[:_LONGEST_STATUS],
        )
        for running_task in heartbeat.running_tasks[:most]
    )
    if not all(math.isfinite(task[1] + task[2] + task[3]) for task in tasks):
        raise invalid(f"worker {heartbeat.worker_id}: an allocation of a task is not a number")
    return tasks


def invalid(message: str) -> RequestFailure:
    """The message has values that no worker can have."""
    return RequestFailure(message, "invalid", Code.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST)


def taken(worker_id: str, inactive_after: float) -> RequestFailure:
    """Another client that is alive sends for the worker."""
    message = (
        f"another client sends for the worker {worker_id}; give each worker its own worker_id. A restarted worker is"
        f" accepted when its old connection ends, or has been silent for {inactive_after:g} s"
    )
    return RequestFailure(message, "taken", Code.ALREADY_EXISTS, HTTPStatus.CONFLICT)


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise invalid(f"the message is not a cluster.{kind.DESCRIPTOR.name}") from error


def _check_id(worker_id: str) -> None:
    if not worker_id or len(worker_id) > LONGEST_ID:
        raise invalid(f"worker_id has {len(worker_id)} characters; send 1 to {LONGEST_ID}")


_CROWD: Final = 0.1
"""The share of all places above which a client without credentials gives some back."""


class Places:
    """Counts the workers of each connection and of each address that have no checked credentials."""

    def __init__(self) -> None:
        self._held: Counter[Peer | str] = Counter()

    def give(self, worker: Worker, sender: WorkerSender) -> None:
        """The worker belongs to this sender now."""
        if worker.owner != sender:
            self.take_back(worker)
            worker.owner = sender
            self._held.update(_holders(sender))

    def take_back(self, worker: Worker) -> None:
        """The worker belongs to nobody any more."""
        for holder in _holders(worker.owner):
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
        worker.owner = None

    def excess(self, workers: Iterable[Worker], newcomer: WorkerSender, most: int) -> Worker | None:
        """The longest silent worker of the client with too many of the `most` places; None if there is no such client.

        Only a client without any worker may get the place: a client with many cannot push out others.
        """
        if self._held[newcomer.peer]:
            return None
        own = newcomer.peer.address
        crowds = ((count, holder) for holder, count in self._held.items() if holder != own)
        count, crowd = max(crowds, key=lambda pair: pair[0], default=(0, ""))
        if count <= max(1, most * _CROWD):
            return None
        of_crowd = (worker for worker in workers if crowd in _holders(worker.owner))
        return min(of_crowd, key=lambda worker: worker.last_seen, default=None)


def _holders(sender: WorkerSender | None) -> tuple[Peer | str, ...]:
    if sender is None or sender.is_trusted:
        return ()
    return (sender.peer, sender.peer.address) if sender.peer.address else (sender.peer,)


_TOMBSTONES: Final = 10_000
"""Removed workers that are remembered. A reader that has not seen an older removal gets the whole state."""


class Changes:
    """Sequence numbers of changes by worker. They begin with the time in us: a restart repeats none."""

    def __init__(self, start: int) -> None:
        self.sequence = start
        """The number of the last change."""
        self._floor = start
        """Changes up to this number may be forgotten."""
        self._last: OrderedDict[str, int] = OrderedDict()
        """The last change of each worker, the oldest first."""
        self._removed: deque[str] = deque()

    def note(self, worker_id: str) -> None:
        """The worker has changed."""
        self.sequence += 1
        self._last[worker_id] = self.sequence
        self._last.move_to_end(worker_id)

    def note_removal(self, worker_id: str) -> None:
        """The worker was removed."""
        self.note(worker_id)
        self._removed.append(worker_id)

    def bound(self, known: Container[str]) -> None:
        """Forgets the oldest removals. `known` contains the ids of the present workers."""
        while len(self._removed) > _TOMBSTONES:
            oldest = self._removed.popleft()
            if oldest not in known:
                self._floor = max(self._floor, self._last.pop(oldest, 0))

    def last(self, worker_id: str) -> int:
        """The last change of a worker; 0 if there is none, or if its removal is forgotten."""
        return self._last.get(worker_id, 0)

    def since(self, sequence: int) -> list[str] | None:
        """The workers that changed after this number, the latest first. None if they are not all remembered."""
        if not self._floor <= sequence <= self.sequence:
            return None
        ids = []
        for worker_id, last in reversed(self._last.items()):
            if last <= sequence:
                break
            ids.append(worker_id)
        return ids


_AT_ONCE: Final = 1000
"""Changes in one sweep, which take 5 ms."""


class Fleet:
    """The state of the workers. `sweep` is called about once a second; silence is judged by the monotonic clock."""

    def __init__(self, config: HeartbeatReceiverConfig, clock: Clock) -> None:
        self.workers: dict[str, Worker] = {}
        self.changes = Changes(clock.time_ns() // 1000)
        self.dropped: Counter[str] = Counter()
        """What was dropped since it was last counted, by reason."""
        self.forgotten: list[Worker] = []
        """Workers whose series have to be ended at the next emission."""
        self._config = config
        self._clock = clock
        self._places = Places()
        self._is_full = False
        """Whether no worker was inactive when there was no room, since the last sweep."""
        self._refused: set[Peer] = set()
        """The connections that found no room since the last sweep: they need no further search."""

    def resume(self, config: HeartbeatReceiverConfig) -> None:
        """Goes on after a reload. Nothing was heard meanwhile, so that every active worker has a full timeout."""
        self._config = config
        now = self._clock.monotonic()
        for worker in self.workers.values():
            if worker.active:
                worker.last_seen = now

    def register(self, message: bytes, sender: WorkerSender) -> bool:
        """Whether the worker in an encoded `WorkerInfo` is accepted. Raises `RequestFailure`."""
        worker_id, capacities = read_registration(message)
        worker = self._known(worker_id, sender) or self._admit(worker_id, sender)
        if worker is None:
            return False
        if worker.capacities != capacities:
            worker.capacities = capacities
            worker.describe()
        worker.last_seen = self._clock.monotonic()
        self.changes.note(worker_id)
        return True

    def beat(self, message: bytes, sender: WorkerSender, stream: Closable | None = None) -> bool:
        """Whether an encoded `Heartbeat` is accepted. The latest state wins. Raises `RequestFailure`."""
        heartbeat = read_heartbeat(message)
        tasks = read_tasks(heartbeat, self._config.max_tasks) if heartbeat.running_tasks else ()
        worker = self._known(heartbeat.worker_id, sender) or self._admit_unknown(heartbeat.worker_id, sender)
        if worker is None:
            return False
        if len(heartbeat.running_tasks) > len(tasks):
            self.dropped["too_many_tasks"] += len(heartbeat.running_tasks) - len(tasks)
        worker.cpu, worker.memory = heartbeat.cpu_usage, heartbeat.memory_usage
        worker.storage, worker.gpu = heartbeat.storage_usage, heartbeat.gpu_usage
        worker.set_tasks(tasks)
        worker.active, worker.stream = True, stream
        worker.last_seen, worker.seen_ns = self._clock.monotonic(), self._clock.time_ns()
        self._queue(worker)
        worker.encode()
        self.changes.note(worker.id)
        return True

    def sweep(self) -> bool:
        """Marks silent workers as inactive, and removes those that are silent for long.

        The result is whether some are left: a broken network silences thousands at once. Call it again after a pause.
        """
        now, changed = self._clock.monotonic(), 0
        self._is_full = False
        self._refused.clear()
        for worker in list(self.workers.values()):
            silence = now - worker.last_seen
            if silence <= self._config.inactive_after:
                continue
            if silence > self._config.forget_after:
                self._forget(worker)
            elif worker.active:
                self._silence(worker)
            else:
                continue
            changed += 1
            if changed == _AT_ONCE:
                return True
        self.changes.bound(self.workers)
        return False

    def some_json(self, ids: list[str]) -> bytes:
        """These workers as one JSON object, by id; null for removed ones."""
        return b"{" + b",".join(self._entry(worker_id) for worker_id in ids) + b"}"

    def take_dropped(self) -> Mapping[str, int]:
        """The drops since the last call, by reason."""
        taken, self.dropped = self.dropped, Counter()
        return taken

    def _entry(self, worker_id: str) -> bytes:
        if worker := self.workers.get(worker_id):
            return worker.entry
        return Worker(worker_id).key.encode() + b":null"

    def _queue(self, worker: Worker) -> None:
        if len(worker.samples) >= self._config.queue_size:
            worker.samples.popleft()
            self.dropped["queue_full"] += 1
        usages = (worker.cpu / 100, worker.memory / 100, worker.storage / 100, worker.gpu / 100)
        worker.samples.append(WorkerSample(worker.seen_ns, *usages, len(worker.tasks)))

    def _known(self, worker_id: str, sender: WorkerSender) -> Worker | None:
        """The worker if it is known. Raises `RequestFailure` if it belongs to another client that is alive."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.owner == sender:
            return worker
        owner = worker.owner
        if owner and not owner.is_same(sender) and not (owner.peer.closed or self._is_silent(worker)):
            self.dropped["taken"] += 1
            raise taken(worker_id, self._config.inactive_after)
        self._places.give(worker, sender)
        return worker

    def _is_silent(self, worker: Worker) -> bool:
        return self._clock.monotonic() - worker.last_seen > self._config.inactive_after

    def _admit_unknown(self, worker_id: str, sender: WorkerSender) -> Worker | None:
        if self._config.unknown_workers == "refuse":
            self.dropped["unknown_worker"] += 1
            return None
        return self._admit(worker_id, sender)

    def _admit(self, worker_id: str, sender: WorkerSender) -> Worker | None:
        """A new worker; None if there is no room for it."""
        if len(self.workers) >= self._config.max_workers and not self._make_room(sender):
            self._refused.add(sender.peer)
            self.dropped["too_many_workers"] += 1
            return None
        worker = self.workers[worker_id] = Worker(worker_id)
        self._places.give(worker, sender)
        return worker

    def _make_room(self, newcomer: WorkerSender) -> bool:
        """Forgets the longest silent worker that is inactive, else one of a client with too many workers."""
        if worker := self._longest_inactive():
            self._forget(worker)
            return True
        if newcomer.peer in self._refused:
            return False
        worker = self._places.excess(self.workers.values(), newcomer, self._config.max_workers)
        if worker is None:
            return False
        self.dropped["too_many_workers"] += 1
        self._forget(worker)
        return True

    def _longest_inactive(self) -> Worker | None:
        if self._is_full:
            return None
        silent = (worker for worker in self.workers.values() if self._is_silent(worker))
        oldest = min(silent, key=lambda worker: worker.last_seen, default=None)
        self._is_full = oldest is None
        return oldest

    def _silence(self, worker: Worker) -> None:
        worker.active, worker.stale, worker.stream = False, True, None
        worker.encode()
        self.changes.note(worker.id)

    def _forget(self, worker: Worker) -> None:
        del self.workers[worker.id]
        self._places.take_back(worker)
        if len(self.forgotten) < self._config.max_workers:
            self.forgotten.append(worker)
        self.changes.note_removal(worker.id)
