"""The configured programs: what the child is asked to load, and the series of its tables with their starts and ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags, Metric

from otel_zernel.otlp.points import LARGEST_INTEGER, AttributeValue, key_values
from otel_zernel_receivers.bcc.attach_config import as_request
from otel_zernel_receivers.bcc.config import BccMetricConfig, BucketsConfig, ProgramConfig
from otel_zernel_receivers.bcc.decoder_config import IN_CHILD, decoded
from otel_zernel_receivers.bcc.decoders import Skipped


def bounds(config: BucketsConfig, scale: float) -> list[float]:
    """The explicit bounds in the metric's unit. OTLP's bounds belong to the bucket below them.

    Programs count integers, so the bound of a slot is its largest integer: slot n of bpf_log2l() has the values from
    2 ** (n - 1) to 2 ** n - 1, and slot 1 has 0 too.
    """
    slots = range(config.min, config.max + 1)
    match config.type:
        case "fixed":
            largest: Sequence[float] = config.bounds
        case "log2":
            largest = [(1 << slot) - 1 for slot in slots]
        case "linear":
            largest = [(slot + 1) * config.step - 1 for slot in slots]
    return [scaled(number, scale) for number in largest]


def scaled(number: float, scale: float) -> float:
    """The number in the unit. A division by 1e9 is exact where a product with 1e-9 is not: 5000 ns are 5e-06 s."""
    per_unit = 1 / scale
    return number / round(per_unit) if scale < 1 and abs(per_unit - round(per_unit)) < 1e-6 else number * scale


def counts(config: BucketsConfig, slots: Mapping[int, int]) -> list[int]:
    """The count of each bucket, from the values of the slots. The last bucket has no bound."""
    length = len(config.bounds) if config.type == "fixed" else config.max - config.min + 1
    first = 0 if config.type == "fixed" else config.min
    by_bucket = [0] * (length + 1)
    for slot, count in slots.items():
        if slot != config.sum_slot:
            by_bucket[min(max(slot - first, 0), length)] += count
    return by_bucket


Rows = Sequence[Sequence[Sequence[Any]]]
"""Key and value of each entry of a table."""
Labels = tuple[AttributeValue, ...]
"""The values of the attributes, in the order of the labels."""
Slots = dict[int, int]
"""The sum of each slot of a histogram's table; for sums and gauges, of the slot 0."""


@dataclass(slots=True)
class _Known:
    """A series that was sent."""

    start_ns: int
    total: float
    """The sum of its slots: if it falls, the program has begun anew."""


@dataclass(slots=True)
class MetricSeries:
    """All series of one metric of one program."""

    config: BccMetricConfig
    key: Sequence[str]
    """The fields of the table's key, as rows have them."""
    value: Sequence[str]
    _known: dict[Labels, _Known] = field(default_factory=dict)
    _last_ns: int = 0
    """The time of the last scrape. A series that begins later has begun after it."""

    def restart(self, start_ns: int) -> None:
        """The tables are empty since this time, in ns."""
        self._last_ns = start_ns
        for known in self._known.values():
            known.start_ns, known.total = start_ns, 0

    def metric(self, rows: Rows, time_ns: int, drop: Callable[[int], None]) -> Metric:
        """The points of the rows, and staleness points of the series that are gone.

        `drop` is called with the number of series above the limit.
        """
        series, metric = self._summed(rows), self._metric()
        for labels in [labels for labels in self._known if labels not in series]:
            self._end(metric, labels, time_ns)
        if (over := len(series) - self.config.max_series) > 0:
            series = self._within_limit(series)
            drop(over)
        for labels, slots in series.items():
            self._add(metric, labels, slots, time_ns)
        self._last_ns = time_ns
        return metric

    def pids(self, rows: Rows) -> Iterator[tuple[str, list[int]]]:
        """Each field of the key that holds a pid, with the pids in the rows."""
        for name in self.config.pid_fields:
            at = self.key.index(name)
            yield name, list({row[0][at] for row in rows})

    def _within_limit(self, series: Mapping[Labels, Slots]) -> dict[Labels, Slots]:
        """Known series first: a series that comes and goes would be of no use."""
        order = sorted(series, key=lambda labels: labels not in self._known)
        return {labels: series[labels] for labels in order[: self.config.max_series]}

    def _summed(self, rows: Rows) -> dict[Labels, Slots]:
        slot_at = self.key.index(self.config.buckets.field) if self.config.type == "histogram" else None
        value_at = self.value.index(self.config.value)
        places = [(self.key.index(label.field), label.decoders) for label in self.config.labels]
        series: dict[Labels, Slots] = {}
        for key, value in rows:
            try:
                labels = tuple(decoded(decoders, _field(key[at])) for at, decoders in places)
            except Skipped:
                continue
            slots, slot = series.setdefault(labels, {}), 0 if slot_at is None else key[slot_at]
            slots[slot] = slots.get(slot, 0) + value[value_at]
        return series

    def _add(self, metric: Metric, labels: Labels, slots: Slots, time_ns: int) -> None:
        point = getattr(metric, metric.WhichOneof("data") or "").data_points.add(time_unix_nano=time_ns)
        point.attributes.extend(key_values(self._attributes(labels)))
        if self.config.type != "gauge":
            point.start_time_unix_nano = self._start(labels, sum(slots.values()))
        else:
            self._known.setdefault(labels, _Known(0, 0))
        if self.config.type == "histogram":
            self._fill_histogram(point, slots)
        elif self.config.scale == 1 and isinstance(slots[0], int):
            point.as_int = min(slots[0], LARGEST_INTEGER)
        else:
            point.as_double = scaled(slots[0], self.config.scale)

    def _fill_histogram(self, point: Any, slots: Slots) -> None:
        config = self.config.buckets
        point.explicit_bounds.extend(bounds(config, self.config.scale))
        point.bucket_counts.extend(counts(config, slots))
        point.count = sum(point.bucket_counts)
        if config.sum_slot is not None:
            point.sum = scaled(slots.get(config.sum_slot, 0), self.config.scale)

    def _start(self, labels: Labels, total: float) -> int:
        """The start of the series. It begins anew if its program has deleted or reset the entry."""
        known = self._known.get(labels)
        if known is None or total < known.total:
            known = self._known[labels] = _Known(self._last_ns, total)
        known.total = total
        return known.start_ns

    def _end(self, metric: Metric, labels: Labels, time_ns: int) -> None:
        """Adds the staleness point of a series."""
        del self._known[labels]
        point = getattr(metric, metric.WhichOneof("data") or "").data_points.add(time_unix_nano=time_ns)
        point.attributes.extend(key_values(self._attributes(labels)))
        point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK

    def _attributes(self, labels: Labels) -> dict[str, AttributeValue]:
        return {label.name: value for label, value in zip(self.config.labels, labels, strict=True)}

    def _metric(self) -> Metric:
        """The metric without points."""
        metric = Metric(name=self.config.name, unit=self.config.unit, description=self.config.description)
        match self.config.type:
            case "gauge":
                metric.gauge.SetInParent()
            case "sum":
                metric.sum.is_monotonic = True
                metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            case "histogram":
                metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        return metric


def _field(value: Any) -> int | bytes:
    """A field as decoders take it: JSON has bytes as latin-1."""
    return value.encode("latin-1") if isinstance(value, str) else value


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
    return {
        label.field: label.decoders[0].name for label in labels if label.decoders and label.decoders[0].name in IN_CHILD
    }


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
        return (series for of_table in self._series.values() for series in of_table)

    def _check(self, place: str, metric: BccMetricConfig, key: Sequence[str], value: Sequence[str]) -> None:
        for part, wanted, fields in (("key", metric.key_fields(), key), ("value", [metric.value], value)):
            for name in sorted({*wanted} - {*fields}):
                known = ", ".join(fields) if fields != [""] else "none: leave the option out"
                self.problems.append(
                    f"{place}: the {part} of table {metric.table} has no field {name!r}; it has {known}"
                )
