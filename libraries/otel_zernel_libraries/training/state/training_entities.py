"""The processes, jobs, GPUs and memory of all trainings: which point is about which of them, and when they leave."""

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.code_times import CodeTimes
from otel_zernel_libraries.training.hangs import HANG, JobHang, SeenHang
from otel_zernel_libraries.training.points import LONGEST_TEXT, SeenValue, scalars_of
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.state.gpus import SeenGpu, gpu_id_of
from otel_zernel_libraries.training.state.jobs import SeenJob, assign, job_key_of, spread_lateness
from otel_zernel_libraries.training.state.memory import SeenMemory, memory_key_of
from otel_zernel_libraries.training.state.processes import SeenProcess, process_id_of
from otel_zernel_libraries.training.state.step_rows import StepRows
from otel_zernel_libraries.training.state.tables import Entities, bounded

_MOST_PROCESSES: Final = 1024
_MOST_GPUS: Final = 1024
_MOST_JOBS: Final = 128
"""Jobs of several ranks."""
_MOST_MEMORIES: Final = 1024
"""Pairs of a process and a GPU."""
_AGEING: Final = 5.0
"""Seconds between two looks for durations that are older than a minute."""
Resource = Mapping[str, AttributeValue]

_RECORDS: Final[Mapping[str, Callable[[AnyValue], JobAnswer | JobHang | CodeTimes]]] = {
    semconv.JOB_CAUSES: JobAnswer.from_body,
    semconv.JOB_HUNG: HANG.read,
    semconv.JOB_STOPPED: HANG.read,
    semconv.PROCESS_CODE: CodeTimes.from_body,
}
"""By event: how the body of a record is read."""


class TrainingEntities:
    """Bounded tables of all that a training consists of. All times are monotonic (s) unless noted otherwise."""

    def __init__(
        self, *, expiration: float, kept_after_end: float, rows: int, appeared: Callable[[SeenProcess], None]
    ) -> None:
        """As `TrainingState`."""
        self._dropped: deque[str] = deque()
        """The reasons of items beyond the limits. Both ends may be used by different threads."""
        ages = expiration, kept_after_end
        self.processes: Entities[SeenProcess] = Entities(_MOST_PROCESSES, *ages, partial(self.refuse, "max_ranks"))
        self.jobs: Entities[SeenJob] = Entities(_MOST_JOBS, *ages, partial(self.refuse, "max_jobs"))
        self.gpus: Entities[SeenGpu] = Entities(_MOST_GPUS, *ages, partial(self.refuse, "max_gpus"))
        self.memory: Entities[SeenMemory] = Entities(_MOST_MEMORIES, *ages, partial(self.refuse, "max_processes"))
        self.malformed = ""
        """The attribute that the latest malformed span or record lacked."""
        self.touched = -math.inf
        """When the newest data that was read arrived."""
        self._are_jobs_due = False
        """Whether processes or jobs are new, or their names have changed."""
        self._rows = rows
        self._appeared = appeared
        self._by_pid: dict[tuple[str, int], str] = {}
        """The process that had the pid last, by host and pid."""
        self._aged = 0.0

    def add_records(self, of_resource: ResourceLogs, now: float) -> None:
        """Reads the causes of a job, or of a process that trains alone, its hang, and the code of a process."""
        for record in (record for scope in of_resource.scope_logs for record in scope.log_records):
            if (read := _RECORDS.get(record.event_name)) is None:
                continue
            seen = SeenValue(0.0, record.time_unix_nano, {}, scalars_of(of_resource.resource.attributes))
            try:
                content = read(record.body)
            except MalformedSpan as error:
                self.refuse_malformed(error)
                continue
            if isinstance(content, CodeTimes):
                if process := self.process_at(seen, now, makes=True):
                    process.code = content
            elif trained := self.job_at(seen, now) or self.process_at(seen, now, makes=True):
                if isinstance(content, JobHang):
                    trained.hang = SeenHang(content, record.time_unix_nano / 1e9)
                else:
                    trained.answer = content
                self.touched = now

    def refuse_malformed(self, error: MalformedSpan) -> None:
        """Counts a span or a record that is not as in docs/development/spans.md."""
        self.malformed = str(error)
        self.refuse("malformed_span")

    def settle(self, now: float) -> None:
        """Lets the old leave, and finds the job of each process."""
        for table in (self.processes, self.gpus, self.jobs, self.memory):
            table.sweep(now)
        for process in self.processes.left:
            if self._by_pid.get(at := (process.host, process.pid)) == process.id:
                del self._by_pid[at]
        self._are_jobs_due |= bool(self.processes.left or self.jobs.left)
        for left in (self.processes.left, self.gpus.left, self.jobs.left, self.memory.left):
            left.clear()
        self.memory.changed.clear()  # no reader follows them
        if self._are_jobs_due:
            self._are_jobs_due = assign(self.processes, self.jobs, now)
        spread_lateness(self.processes, self.jobs)
        if now - self._aged >= _AGEING:
            self._aged = now
            self.processes.changed.update(process.id for process in self.processes if process.is_ageing(now))

    def take_dropped(self) -> Counter[str]:
        """The number of items beyond the limits since the last call, by reason. Any thread may call it."""
        taken = Counter[str]()
        while self._dropped:
            taken[self._dropped.popleft()] += 1
        return taken

    def refuse(self, reason: str) -> None:
        """Counts an item beyond the limits."""
        self._dropped.append(reason)

    def process_of(
        self,
        resource: Resource,
        attributes: Resource,
        time_ns: int,
        now: float,
        *,
        makes: bool = True,
        is_end: bool = False,
    ) -> SeenProcess | None:
        """The process of a point or a span: the resource is one, or the point has the pid of one that is known.

        Without `makes`, only a process that is known. `is_end`: a series ends, which is no sign of life.
        """
        pid = attributes.get("process.pid", resource.get("process.pid"))
        if not isinstance(pid, int):
            return None
        at = str(resource.get("host.name", "")), pid
        is_process = "process.pid" in resource
        id_ = self._id_of(resource, at)
        is_new = self.processes.get(id_) is None
        if is_new and not (makes and is_process):
            return None
        process = self.processes.touch(
            id_, lambda: SeenProcess({}, id_, appeared=now, rows=StepRows(self._rows)), now, is_end=is_end
        )
        if process is None or is_end:
            return process
        process.first_ns = process.first_ns or time_ns
        process.seen_ns = max(process.seen_ns, time_ns)
        if is_process and not resource.items() <= process.attributes.items():
            process.attributes = bounded({**process.attributes, **resource})
            self._are_jobs_due = True
        if is_new:
            self._appeared(process)
        self._by_pid[at] = id_
        return process

    def _id_of(self, resource: Resource, at: tuple[str, int]) -> str:
        """The id of a process by its resource, or by its host and pid. Empty if neither is known."""
        if "process.creation.time" in resource:
            return process_id_of(resource)
        return self._by_pid.get(at, "") or (process_id_of(resource) if "process.pid" in resource else "")

    def process_at(self, seen: SeenValue, now: float, *, makes: bool) -> SeenProcess | None:
        """The process of a point, as `process_of`."""
        is_end = seen.value is None
        return self.process_of(seen.resource, seen.attributes, seen.time_ns, now, makes=makes, is_end=is_end)

    def gpu_at(self, seen: SeenValue, now: float) -> SeenGpu | None:
        """The GPU of a point; None if the point is about none."""
        if not (id_ := gpu_id_of(seen)):
            return None
        host, is_end = str(seen.resource.get("host.name", ""))[:LONGEST_TEXT], seen.value is None
        gpu = self.gpus.touch(id_, lambda: SeenGpu(host), now, is_end=is_end)
        if gpu and not is_end:
            gpu.seen_ns = max(gpu.seen_ns, seen.time_ns)
            gpu.describe(seen.resource)
            gpu.describe(seen.attributes)
        return gpu

    def job_at(self, seen: SeenValue, now: float) -> SeenJob | None:
        """The job of a point; None if the point is about none."""
        if not (key := job_key_of(seen.resource)):
            return None
        known = self.jobs.get(id_ := key[1])
        if known and known.key != key:
            known = self.jobs.get(id_ := "=".join(key))
        is_new = known is None
        job = self.jobs.touch(id_, lambda: SeenJob(key, id_), now, is_end=seen.value is None)
        self._are_jobs_due |= is_new and job is not None
        return job

    def memory_at(self, seen: SeenValue, now: float) -> SeenMemory | None:
        """The memory of a process on a GPU; None if the point is about no process."""
        if not (key := memory_key_of(seen)):
            return None
        id_ = "{}/{}/{}".format(*key)
        return self.memory.touch(id_, lambda: SeenMemory(id_, *key[1:]), now, is_end=seen.value is None)

    def use_gpu(self, host: str, pid: int, gpu: str) -> None:
        """The process with this pid, if it is known, uses the GPU with this id."""
        process = self.processes.get(self._by_pid.get((host, pid), ""))
        if process and process.gpu != gpu:
            process.gpu = gpu
            self.processes.changed.add(process.id)
