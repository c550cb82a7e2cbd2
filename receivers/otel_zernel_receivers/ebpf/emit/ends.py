"""Ends of processes and of their workers: as log records, and as lines in the collector's own log.

The metrics are in `metrics.py`, and the spans in `spans.py`.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from otel_zernel.batch import Batch
from otel_zernel.component import Logger
from otel_zernel.otlp.points import Attributes, AttributeValue, key_values
from otel_zernel.text import printable
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.emit.log_records import log_batch
from otel_zernel_receivers.ebpf.kernel.kernel_structs import OUT_OF_MEMORY, Ending, Interval
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.oom import OomKills
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

_LINES = 20
"""Ends that one reading logs in lines of their own. Programs may start and end by the thousand."""
_ORIGIN = ("host.name", semconv.RANK)
"""The attributes of the resource that the points of ends repeat."""


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `SIGRTMIN+3` for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else str(number)


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a watched process, or of one of its workers."""

    attributes: Attributes
    """The resource attributes of the process, or of the one that the worker served."""
    name: str
    """Of the process or worker."""
    pid: int
    """Of the process or worker."""
    time_ns: int
    """Unix time."""
    status: int
    """As wait(2) gives it."""
    is_worker: bool
    trained: bool
    """Whether the process trained; False for a worker."""
    out_of_memory: bool
    """Whether the kernel killed it because its memory was used up."""

    @property
    def service(self) -> str:
        """The `service.name` of the process, or of the one that the worker served."""
        return str(self.attributes["service.name"])

    @property
    def origin(self) -> dict[str, AttributeValue]:
        """The host and the rank, for points."""
        return {name: self.attributes[name] for name in _ORIGIN if name in self.attributes}

    @property
    def reason(self) -> dict[str, AttributeValue]:
        """`process.signal` or `process.exit.code`."""
        if os.WIFSIGNALED(self.status):
            return {"process.signal": signal_name(os.WTERMSIG(self.status))}
        return {"process.exit.code": os.WEXITSTATUS(self.status)}

    @property
    def has_failed(self) -> bool:
        """Whether a signal killed it, or its exit code was not 0."""
        return self.status != 0

    def sentence(self) -> str:
        """`Rank 3 (python3, pid 812) on node-1 was killed by SIGKILL: out of memory`."""
        rank, host = self.attributes.get(semconv.RANK), self.attributes["host.name"]
        process = f"({printable(self.name)}, pid {self.pid})"
        served = f"rank {rank}" if rank is not None else f"process {self.attributes['process.pid']}"
        if self.is_worker:
            subject = f"A data-loading worker {process} of {served}"
        else:
            subject = f"Rank {rank} {process}" if rank is not None else f"Process {self.pid} ({printable(self.name)})"
        return f"{subject} on {host} {self._predicate()}"

    def _predicate(self) -> str:
        reason = self.reason
        if killed_by := reason.get("process.signal"):
            return f"was killed by {killed_by}{': out of memory' if self.out_of_memory else ''}"
        return f"ended with exit code {reason['process.exit.code']}"


class EndLog:
    """Reads ends from events, and reports them as log records and log lines."""

    def __init__(self, identities: Identities, monotonic: Callable[[], float], logger: Logger, offset_ns: int) -> None:
        """`offset_ns` is the offset from CLOCK_MONOTONIC to Unix time."""
        self._identities = identities
        self._kills = OomKills(monotonic)
        self._logger = logger
        self._offset_ns = offset_ns

    def read(self, events: NDArray[Any]) -> list[ProcessEnd]:
        """The ends among the events of a reading, in order. Marks those that were out of memory in `events`.

        Processes that execute another program go on, and are not among them. Only those workers that failed are
        reported by `records` and `log`.
        """
        self._kills.follow(self._identities.memory_cgroups())
        is_end = (events["interval"] == Interval.PROCESS) & (events["operation"] == Ending.EXITED)
        is_end |= events["interval"] == Interval.WORKER
        return [end for at in np.flatnonzero(is_end) if (end := self._end(events, int(at)))]

    def records(self, ends: Sequence[ProcessEnd]) -> Batch | None:
        """A log record for each end that matters; None if there are none."""
        return log_batch((end.attributes, _record(end)) for end in ends if end.has_failed or not end.is_worker)

    def log(self, ends: Iterable[ProcessEnd]) -> None:
        """Logs failures as warnings, and the usual ends of processes that trained."""
        shown = [end for end in ends if end.has_failed or end.trained]
        for end in shown[:_LINES]:
            (self._logger.warning if end.has_failed else self._logger.info)("%s", end.sentence())
        if rest := shown[_LINES:]:
            failed = sum(end.has_failed for end in rest)
            self._logger.warning("%d more processes ended at the same time, %d of them with errors", len(rest), failed)

    def _end(self, events: NDArray[Any], at: int) -> ProcessEnd | None:
        event = events[at]
        process = WatchedProcess(int(event["row"]), int(event["generation"]), int(event["pid"]))
        if not self._identities.is_selected(process):
            return None
        facts = event["facts"]["end"]
        is_worker, status = event["interval"] == Interval.WORKER, int(facts["status"])
        attributes = self._identities.attributes_of(process)
        name = facts["program"].decode(errors="replace") if is_worker else attributes["process.executable.name"]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        out_of_memory = killed and self._kills.explains(self._identities.memory_cgroup(process))
        if out_of_memory:
            events["flags"][at] |= OUT_OF_MEMORY
        return ProcessEnd(
            attributes=attributes,
            name=str(name),
            pid=int(event["tid"]) if is_worker else process.pid,
            time_ns=int(event["end"]) + self._offset_ns,
            status=status,
            is_worker=bool(is_worker),
            trained=not is_worker and self._identities.trains(process),
            out_of_memory=out_of_memory,
        )


def _record(end: ProcessEnd) -> LogRecord:
    severity = SeverityNumber.SEVERITY_NUMBER_ERROR if end.has_failed else SeverityNumber.SEVERITY_NUMBER_INFO
    return LogRecord(
        time_unix_nano=end.time_ns,
        observed_time_unix_nano=end.time_ns,
        severity_number=severity,
        severity_text="ERROR" if end.has_failed else "INFO",
        event_name=semconv.DATALOADER_WORKER_END if end.is_worker else semconv.PROCESS_END,
        body=AnyValue(string_value=end.sentence()),
        attributes=key_values(_attributes(end)),
    )


def _attributes(end: ProcessEnd) -> Mapping[str, AttributeValue]:
    worker = {semconv.DATALOADER_WORKER_PID: end.pid} if end.is_worker else {}
    return {**end.reason, **worker, semconv.PROCESS_OUT_OF_MEMORY: end.out_of_memory}
