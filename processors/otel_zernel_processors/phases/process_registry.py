"""The processes of one host by pid and creation time."""

from collections.abc import Callable

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_processors.phases.ended_processes import EndedProcesses, ProcessKey
from otel_zernel_processors.phases.intake.inputs import scalars
from otel_zernel_processors.phases.process import TrainingProcess


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
        found = self.find((parent, "")) if isinstance(parent, int) and parent else None
        is_same_rank = found and named.get("zernel.rank") in (None, found.attributes.get("zernel.rank"))
        return found if found and found.is_ml and is_same_rank else None

    def dismiss_workers(self) -> list[TrainingProcess]:
        """Removes the processes that only serve one that trains, and were added before that was known."""
        served = {key: self.trainer_of(one.resource) for key, one in self.processes.items() if not one.is_ml}
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
