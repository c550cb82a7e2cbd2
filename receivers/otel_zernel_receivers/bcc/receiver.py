"""The bcc receiver: makes points of the tables, and follows the processes to which their entries belong."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel import __version__
from otel_zernel.batch import Batch, count_points
from otel_zernel.component import Context, Finding, Scraper
from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.job_environment import host_name
from otel_zernel_receivers.bcc.config import BccConfig
from otel_zernel_receivers.bcc.doctor import examine
from otel_zernel_receivers.bcc.process import command
from otel_zernel_receivers.bcc.programs import LoadedTables
from otel_zernel_receivers.bcc.session import ProgramSession


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
        return Batch.encoded(metrics=data.SerializeToString(), point_count=count_points(data))

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
