"""The processes of one host by pid and creation time."""

from collections import deque
from collections.abc import Callable, Iterator

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.emit.staleness import StalenessTracker
from otel_zernel_processors.phases.intake.inputs import scalars
from otel_zernel_processors.phases.process import TrainingProcess

LINGER_NS = 60_000_000_000
"""How long the last values of an ended process stay readable, as with the series of the ebpf receiver."""

ProcessKey = tuple[int, str]
"""A pid and its creation time (empty if unknown). A pid may be reused, and may exist in several containers."""


class EndedProcesses:
    """The processes that ended within the last minute, the earliest first.

    Their series end later, late data does not revive them, and spans that arrive again do not count again.
    """

    def __init__(self) -> None:
        self._series: deque[tuple[int, StalenessTracker]] = deque()
        self._dead: dict[ProcessKey, int] = {}
        self._processed: dict[ProcessKey, tuple[int, int]] = {}
        """Until when (ns) the spans of a process were processed, and when it was added."""

    def add(self, key: ProcessKey, series: StalenessTracker, now: int, *, dead: bool) -> None:
        """Adds a process that is no longer followed from `now` (ns) on. If it is dead, late data of it, or data with
        only its pid, does not create a process."""
        self._series.append((now, series))
        if dead:
            self._dead |= dict.fromkeys((key, (key[0], "")), now)

    def is_dead(self, key: ProcessKey) -> bool:
        """Whether the process is known to be dead."""
        return key in self._dead

    def set_processed(self, key: ProcessKey, until: int, now: int) -> None:
        """Notes that the spans of a process that ended by `until` (ns) were processed."""
        self._processed |= dict.fromkeys((key, (key[0], "")), (until, now))

    def processed_until(self, key: ProcessKey) -> int:
        """Until when (ns) the spans of a process with this key were processed; 0 if none ended lately."""
        return self._processed.get(key, (0, 0))[0]

    def pop_expired(self, now: int) -> Iterator[StalenessTracker]:
        """Removes the processes that ended a minute before `now` (ns) or earlier; yields their series."""
        self._dead = {key: since for key, since in self._dead.items() if since > now - LINGER_NS}
        self._processed = {
            key: processed for key, processed in self._processed.items() if processed[1] > now - LINGER_NS
        }
        while self._series and self._series[0][0] <= now - LINGER_NS:
            yield self._series.popleft()[1]


class ProcessRegistry:
    """The followed processes of one host, and those that ended within the last minute."""

    def __init__(self, create: Callable[[ProcessKey, Resource], TrainingProcess], has_room: Callable[[], bool]) -> None:
        self.processes: dict[ProcessKey, TrainingProcess] = {}
        self.ended = EndedProcesses()
        self._create = create
        self._has_room = has_room

    def find(self, key: ProcessKey) -> TrainingProcess | None:
        """The process of a key. Without a creation time it is the one with this pid that was seen last."""
        pid, created = key
        if key in self.processes:
            return self.processes[key]
        if created:
            return self.processes.get((pid, ""))
        of_pid = (process for (number, _), process in self.processes.items() if number == pid)
        return max(of_pid, key=lambda process: process.last_seen, default=None)

    def find_or_add(self, key: ProcessKey, resource: Resource) -> TrainingProcess | None:
        """The process of a key, added if it is new; None if it is dead or if there is no room for it.

        The first data of a process may come without its creation time. The first data with one completes its key and
        its resource.
        """
        process = self.find(key)
        if process is None:
            return self._add(key, resource)
        if key[1] and key not in self.processes:
            self.processes[key] = self.processes.pop((key[0], ""))
            process.update_resource(resource)
        return process

    def trainer_of(self, resource: Resource) -> TrainingProcess | None:
        """The followed process that the process with this resource would serve if it does not train itself: its parent,
        if that trains. Ranks of a launcher do not serve it: a worker has its trainer's rank or none."""
        named = scalars(resource.attributes)
        parent = named.get("process.parent_pid")
        trainer = self.find((parent, "")) if isinstance(parent, int) and parent else None
        is_same_rank = trainer and named.get(semconv.RANK) in (None, trainer.attributes.get(semconv.RANK))
        return trainer if trainer and trainer.phases.is_ml and is_same_rank else None

    def dismiss_workers(self) -> list[TrainingProcess]:
        """Removes the processes that only serve one that trains, and were added before that was known."""
        served = {
            key: self.trainer_of(process.resource)
            for key, process in self.processes.items()
            if not process.phases.is_ml
        }
        return [self.processes.pop(key) for key, trainer in served.items() if trainer]

    def retire(self, key: ProcessKey, now: int) -> TrainingProcess:
        """Removes a process that has ended by `now` (ns)."""
        process = self.processes.pop(key)
        self.ended.add(key, process.series, now, dead=process.ended > 0)
        return process

    def clear(self) -> list[TrainingProcess]:
        """Removes all processes."""
        processes, self.processes = list(self.processes.values()), {}
        return processes

    def _add(self, key: ProcessKey, resource: Resource) -> TrainingProcess | None:
        if self.ended.is_dead(key) or not self._has_room():
            return None
        process = self.processes[key] = self._create(key, resource)
        return process


def key_of(resource: Resource) -> ProcessKey:
    """The pid (0 if unknown) and the creation time (empty if unknown) in a resource."""
    named = scalars(resource.attributes)
    pid = named.get("process.pid", 0)
    return pid if isinstance(pid, int) else 0, str(named.get("process.creation.time", ""))
