"""The log records with the causes of a job, and with the code of a process; its profiles."""

from collections.abc import Iterator
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.code_profiles import profiles_data
from otel_zernel_libraries.training.code_times import CodeTimes
from otel_zernel_processors.phases.emit.metrics import SCOPE, Value

ANSWERS_NS: Final = 10_000_000_000
"""ns from one answer to the next, at least: a replay of all what-ifs is not free."""
_REPLAYED_NS: Final = 1_700_000
"""ns to the next answer for each segment of a thread on a GPU that an answer replays: that takes some 85 us of CPU, and
is to take at most a twentieth of a core."""
_FEW: Final = 100
"""Steps. An answer on fewer is looked for again when twice as many may be known."""
UNKNOWN_NS: Final = 30_000_000_000
"""ns before it is told that no cause can be named, and why: the first seconds of a job say little. Then so many from
one time to the next."""


class LatestAnswer:
    """The latest answer on a process or on a job. If no other one follows, it stands for a window."""

    def __init__(self, window: int) -> None:
        """`window`: in ns."""
        self.answer: JobAnswer | None = None
        self.asked = 0
        """When (ns) an answer was looked for."""
        self.is_told = True
        """Whether the latest answer has been told."""
        self._window, self._found = window, 0
        self._wait = ANSWERS_NS
        """ns from one answer to the next."""
        self._began = self._told = 0
        """When (ns) an answer was looked for first, and when one was told."""

    def is_due(self, now: int) -> bool:
        """Whether to look for another one."""
        if self.answer is None or self.answer.unknown:
            return True
        soon = max(self.asked - self._began, 1) if self.answer.steps < _FEW else self._wait
        return now - self.asked >= min(soon, self._wait)

    def add(self, answer: JobAnswer | None, now: int, segments: int = 0, *, is_last: bool = False) -> JobAnswer | None:
        """Adds what was found at `now` (ns), and returns it if it is worth telling. `segments`: those of threads on
        GPUs that were replayed. `is_last`: whether none follows."""
        self.asked, self._wait = now, max(ANSWERS_NS, segments * _REPLAYED_NS)
        self._began = self._began or now
        is_known = answer is not None and not answer.unknown
        self._found = now if is_known else self._found
        stands = self.answer is not None and not self.answer.unknown and now - self._found <= self._window
        if not is_known and stands:
            return None
        self.answer = answer
        is_due = is_known or is_last or now - max(self._told, self._began) >= UNKNOWN_NS
        self.is_told = answer is None or is_due
        if answer is None or not is_due:
            return None
        self._told = now
        return answer


def answer_batch(answer: JobAnswer, resource: Resource, now: int) -> Batch:
    """The record of an answer at `now` (ns). `resource` is that of the job, or of the process that trains alone."""
    return record_batch(semconv.JOB_CAUSES, answer.to_body(), resource, now)


def code_batch(code: CodeTimes, resource: Resource, now: int) -> Batch:
    """The record of the stacks of a process at `now` (ns), by position."""
    return record_batch(semconv.PROCESS_CODE, code.to_body(), resource, now)


def profiles_batch(code: CodeTimes, resource: Resource, start: int, end: int) -> Batch:
    """The stacks of a process in the time from `start` to `end` (ns), as profiles."""
    return Batch(profiles=profiles_data(code, resource, SCOPE, start, end))


def record_batch(event: str, body: AnyValue, resource: Resource, now: int, severity: str = "INFO") -> Batch:
    """A log record of the time `now` (ns)."""
    record = LogRecord(
        time_unix_nano=now,
        observed_time_unix_nano=now,
        severity_number=SeverityNumber.Value(f"SEVERITY_NUMBER_{severity}"),
        severity_text=severity,
        event_name=event,
        body=body,
    )
    scopes = [ScopeLogs(scope=SCOPE, log_records=[record])]
    return Batch(logs=LogsData(resource_logs=[ResourceLogs(resource=resource, scope_logs=scopes)]))


def gains(answer: JobAnswer | None) -> Iterator[Value]:
    """The points of `zernel.cause.gain`."""
    for cause in answer.causes if answer else ():
        names = {
            semconv.CAUSE: cause.cause.value,
            semconv.POSITION: cause.position,
            semconv.ACTIVITY: cause.activity,
            semconv.RANK: cause.rank,
        }
        yield {key: name for key, name in names.items() if name is not None}, cause.gain
