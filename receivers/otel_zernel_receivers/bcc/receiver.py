"""The bcc receiver: makes points of the tables, and follows the processes to which their entries belong.

The child process starts at the first question, and again at the next one after it has failed.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel import __version__
from otel_zernel.batch import Batch, count_items
from otel_zernel.component import Context, Finding, Scraper
from otel_zernel.errors import CannotStart
from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.job_environment import host_name
from otel_zernel_receivers.bcc.config import BccConfig
from otel_zernel_receivers.bcc.declared import RESTARTS
from otel_zernel_receivers.bcc.doctor import examine
from otel_zernel_receivers.bcc.process import ChildFailed, ChildProcess, command
from otel_zernel_receivers.bcc.programs import LoadedTables, request
from otel_zernel_receivers.bcc.sentences import listed, problem_sentence

_EARLIER = 0.9
"""The part of a scrape's timeout after which the child has failed, so that the log has this reason."""
Gone = Mapping[tuple[str, str, str], Sequence[int]]
"""Pids that have ended, by program, table and field of the key."""


class ProgramSession:
    """Reads the tables of all programs. A failed child costs one scrape."""

    def __init__(self, config: BccConfig, context: Context, line: Callable[[str], list[str]]) -> None:
        """`line` makes the command line of the child from the path of the interpreter."""
        self._config = config
        self._context = context
        self._line = line
        self._child: ChildProcess | None = None
        self._programs: list[dict[str, Any]] = []
        """As read at the first start: a file that changes later has no effect."""
        self._tables: LoadedTables | None = None
        self._restarts = context.meter.create_counter(*RESTARTS.counter)

    def read(self, gone: Gone) -> tuple[LoadedTables, Sequence[Mapping[str, Any]]]:
        """The series, and the rows of each table. Entries of `gone` pids are deleted before.

        Raises `CannotStart` if the first child fails before it is ready, and `ChildFailed` later.
        """
        tables = self._tables if self._child else self._start()
        doomed = [{"program": p, "table": t, "field": f, "values": [*values]} for (p, t, f), values in gone.items()]
        timeout = (self._config.timeout or self._config.collection_interval) * _EARLIER
        answer = self._ask({"gone": doomed}, timeout, "tables")
        assert tables  # noqa: S101  # a child is there, so a start has succeeded
        return tables, answer

    def close(self) -> None:
        """Ends the child. Safe to call twice."""
        if self._child:
            self._child.close()
            self._child = None

    def _start(self) -> LoadedTables:
        try:
            return self._started()
        except ChildFailed as failed:
            if self._tables:
                raise
            raise CannotStart(f"{self._context.path}: {failed}") from failed
        except OSError as error:
            raise CannotStart(f"{self._context.path}: cannot use {error.filename}: {error.strerror}") from error

    def _started(self) -> LoadedTables:
        """Starts a child, in which all tables are empty."""
        self._programs = self._programs or [request(*item) for item in self._config.programs.items()]
        names = ", ".join(self._config.programs)
        self._context.logger.info("Compiling the BPF programs, which takes some seconds for each: %s", names)
        self._child = ChildProcess(self._line(self._config.python))
        first = {"parent": os.getpid(), "kernel_headers": self._config.kernel_headers, "programs": self._programs}
        ready = self._ask(first, self._config.start_timeout, "ready")
        if not self._tables:
            tables = LoadedTables(self._config.programs, ready)
            if tables.problems:
                self.close()
                raise CannotStart(listed(self._context.path, tables.problems))
            self._tables = tables
        self._context.logger.info("Attached the BPF programs: %s", names)
        self._tables.restart(self._context.clock.time_ns())
        return self._tables

    def _ask(self, message: Any, seconds: float, key: str) -> Any:
        """This part of the child's answer. Raises `ChildFailed` or, before the first success, `CannotStart`."""
        assert self._child  # noqa: S101  # callers start it
        try:
            answer = self._child.ask(message, seconds)
            if key in answer:
                return answer[key]
            raise self._refused(answer)
        except ChildFailed as failed:
            self.close()
            if self._tables:
                self._restarts.add(1, {"reason": failed.reason})
            raise

    def _refused(self, answer: Mapping[str, Any]) -> Exception:
        """The error for an answer without the expected part."""
        problems = [problem_sentence(problem, self._config.python) for problem in answer.get("problems", ())]
        if not problems:
            return ChildFailed("the BPF programs' process sent a message of an unknown form", "garbage")
        text = listed(self._context.path, problems)
        if self._tables:
            return ChildFailed(text, "refused")
        self.close()
        return CannotStart(text)


class LivingPids:
    """Looks up pids in a procfs."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def gone(self, pids: Iterable[int]) -> set[int]:
        """The pids without a process. BPF has the pids of the machine: in a procfs of a container, nothing is known."""
        if not self._is_of_the_machine():
            return set()
        return {pid for pid in pids if pid and not (self._proc / str(pid)).exists()}

    def _is_of_the_machine(self) -> bool:
        """Whether the procfs has the thread kthreadd of the kernel, which no container sees."""
        try:
            return (self._proc / "2" / "comm").read_text() == "kthreadd\n"
        except OSError:
            return False


_SCOPE = InstrumentationScope(name="otel_zernel_receivers.bcc", version=__version__)


class BccReceiver(Scraper):
    """Runs BPF programs of one's own, written in C, by BCC, and turns their tables into metrics."""

    Config = BccConfig
    stability = "alpha"
    signals = frozenset({"metrics"})
    config: BccConfig

    @classmethod
    def examine(cls, config: BccConfig | None = None) -> Iterable[Finding]:
        return examine(config)

    def __init__(self, config: BccConfig, context: Context, line: Callable[[str], list[str]] = command) -> None:
        """`line` makes the command line of the child process from the path of the interpreter."""
        super().__init__(config, context)
        self._session = ProgramSession(config, context, line)
        self._pids = LivingPids(Path(config.proc))
        self._gone: dict[tuple[str, str, str], list[int]] = {}
        """Pids that have ended: their last values were sent, and the next scrape deletes their entries."""
        self._over_is_logged = False

    def scrape(self) -> Batch:
        gone, self._gone = self._gone, {}
        series, tables = self._session.read(gone)
        time_ns = self.context.clock.time_ns()
        metrics = [metric for table in tables for metric in self._metrics(series, table, time_ns)]
        resource = Resource(attributes=key_values({"host.name": host_name()}))
        scoped = ScopeMetrics(scope=_SCOPE, metrics=metrics)
        data = MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scoped])])
        # Encoded here, in the thread of the scrape, and not later in the event loop.
        return Batch.encoded("metrics", data.SerializeToString(), count_items(data))

    def close(self) -> None:
        self._session.close()

    def _metrics(self, loaded: LoadedTables, table: Mapping[str, Any], time_ns: int) -> Iterable[Metric]:
        """The metrics from one table. Notes the processes that have ended."""
        program, name, rows = table["program"], table["table"], table["rows"]
        if table["over"]:
            self._over(table["over"])
        for series in loaded.of(program, name):
            metric = series.metric(rows, time_ns, self._over)
            if getattr(metric, metric.WhichOneof("data") or "").data_points:
                yield metric
            for field, pids in series.pids(rows):
                self._end(program, name, field, pids)

    def _end(self, program: str, table: str, field: str, pids: Sequence[int]) -> None:
        if ended := self._pids.gone(pids):
            self._gone[program, table, field] = sorted(ended)

    def _over(self, count: int) -> None:
        """Counts series, or entries of a table, for which there is no room."""
        self.context.drop(count, "limit")
        if not self._over_is_logged:
            self._over_is_logged = True
            self.context.logger.warning(
                "Dropped %d points above the limit of series; raise max_series, or use fewer labels", count
            )
