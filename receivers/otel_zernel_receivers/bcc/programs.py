"""The configured programs: what the child is asked to load, and the series of what it has loaded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otel_zernel_receivers.bcc.attach_config import as_request
from otel_zernel_receivers.bcc.config import BccMetricConfig, ProgramConfig
from otel_zernel_receivers.bcc.decoder_config import IN_CHILD
from otel_zernel_receivers.bcc.series import MetricSeries

Table = tuple[str, str]
"""The names of a program and a table."""


def request(name: str, program: ProgramConfig) -> dict[str, Any]:
    """A program as the child takes it. Raises `OSError` if its file cannot be read."""
    return {
        "name": name,
        "source": program.source if program.file is None else program.file.read_text("utf-8"),
        "file": program.file.name if program.file else "",
        "cflags": list(program.cflags),
        "attach": [as_request(entry) for entry in program.attach],
        "tables": {table: _resolved(program, table) for table in {metric.table for metric in program.metrics}},
    }


def _resolved(program: ProgramConfig, table: str) -> dict[str, str]:
    """The fields of the table's key that the child decodes."""
    labels = [label for metric in program.metrics if metric.table == table for label in metric.labels]
    return {one.field: one.decoders[0].name for one in labels if one.decoders and one.decoders[0].name in IN_CHILD}


class LoadedTables:
    """The series of all metrics, by their tables."""

    def __init__(self, programs: Mapping[str, ProgramConfig], ready: Sequence[Sequence[Any]]) -> None:
        """`ready` has program, table, fields of the key and fields of the value of each table."""
        self.problems: list[str] = []
        """Fields that the configuration names and the tables do not have."""
        self._series: dict[Table, list[MetricSeries]] = {}
        for program, table, key, value in ready:
            for number, metric in enumerate(programs[program].metrics):
                if metric.table == table:
                    self._check(f"programs::{program}::metrics::{number}", metric, key, value)
                    self._series.setdefault((program, table), []).append(MetricSeries(metric, key, value))

    def of(self, program: str, table: str) -> Sequence[MetricSeries]:
        """The series that are made from a table."""
        return self._series.get((program, table), ())

    def restart(self, start_ns: int) -> None:
        """All tables are empty since this time, in ns."""
        for series in self:
            series.restart(start_ns)

    def __iter__(self) -> Iterator[MetricSeries]:
        return (one for of_table in self._series.values() for one in of_table)

    def _check(self, place: str, metric: BccMetricConfig, key: Sequence[str], value: Sequence[str]) -> None:
        for part, wanted, fields in (("key", metric.key_fields(), key), ("value", [metric.value], value)):
            for name in sorted({*wanted} - {*fields}):
                known = ", ".join(fields) if fields != [""] else "none: leave the option out"
                self.problems.append(
                    f"{place}: the {part} of table {metric.table} has no field {name!r}; it has {known}"
                )
