"""The csv exporter: writes the rows of a batch in a thread, completely or not at all.

Rows have the long layout of dcgm-exporter. The csv receiver converts them back to the same points.
"""

import asyncio
import csv
import io
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Literal, Self

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData, NumberDataPoint

from otel_zernel.batch import Batch, points
from otel_zernel.component import ComponentConfig, Context, Exporter
from otel_zernel.errors import CannotStart, Retryable, invalid_is_permanent
from otel_zernel.otlp.points import Descriptor
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel.types import Permissions
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP, append_whole, open_appending
from otel_zernel_libraries.gpu_names import dcgm
from otel_zernel_libraries.gpu_names.dcgm_fields import field_of
from otel_zernel_libraries.training import semconv

Texts = dict[str, str]

HEADER = ",".join(dcgm.COLUMNS) + "\n"

_IN_COLUMNS = {
    "hw.id": "uuid",
    "hw.model": "modelName",
    "host.name": "Hostname",
    semconv.GPU_INDEX: "gpu_id",
    semconv.GPU_DEVICE: "device",
    **{attribute: column for column, attribute in dcgm.KUBERNETES.items()},
}
_IN_LABELS = {attribute: label for label, attribute in dcgm.LABELS.items()}
_REPEATED = frozenset({"hw.type", "hw.name", "hw.model", "hw.parent", semconv.GPU_INDEX})
_IMPLIED = {"hw.type": "gpu", "hw.vendor": "NVIDIA"}
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_PLAIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]*")


class CsvRows:
    """The rows of a batch as CSV text, and the points without a row."""

    def __init__(self, metrics: MetricsData) -> None:
        self.lost: Counter[str] = Counter()
        """The number of points without a row, by reason."""
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(self._rows(metrics))
        self.text = out.getvalue()

    def _rows(self, metrics: MetricsData) -> Iterator[list[str]]:
        for resource in metrics.resource_metrics:
            about = _texts(resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    reason = _reason(metric, about)
                    if reason:
                        self.lost[reason] += len(points(metric))
                    else:
                        yield from self._rows_of(metric, about)

    def _rows_of(self, metric: Metric, about: Texts) -> Iterator[list[str]]:
        descriptor = Descriptor(metric.name, metric.unit, _kind(metric))
        columns = {column: about.get(attribute, "") for attribute, column in _IN_COLUMNS.items()}
        labels = _resource_labels(about, columns)
        for point in points(metric):
            value = point.as_double if point.HasField("as_double") else float(point.as_int)
            if has_no_value(point) or not math.isfinite(value):
                self.lost["no number"] += 1
            else:
                yield _row(descriptor, _own(point, about), point.time_unix_nano, value, columns, labels)


def _reason(metric: Metric, about: Mapping[str, str]) -> str | None:
    """Why the points of the metric cannot be rows; None if they can."""
    if not ("hw.id" in about or semconv.GPU_INDEX in about):
        return "no GPU"
    if metric.WhichOneof("data") not in ("gauge", "sum"):
        return "no number"
    if metric.HasField("sum") and metric.sum.aggregation_temporality != _CUMULATIVE:
        return "not cumulative"
    return None


def _kind(metric: Metric) -> Literal["gauge", "sum", "up_down"]:
    if metric.HasField("gauge"):
        return "gauge"
    return "sum" if metric.sum.is_monotonic else "up_down"


def _own(point: NumberDataPoint, about: Texts) -> Texts:
    """The attributes of a point, without those of its GPU that it repeats from its resource."""
    texts = _texts(point.attributes)
    return {name: text for name, text in texts.items() if name not in _REPEATED or about.get(name) != text}


def _row(
    descriptor: Descriptor, attributes: Texts, time_ns: int, value: float, columns: Texts, labels: Texts
) -> list[str]:
    if attributes.get("hw.id") == (columns["uuid"] or columns["gpu_id"]):
        del attributes["hw.id"]
    field, measure = _field_of(descriptor, attributes)
    own = {name: text for name, text in attributes.items() if name not in measure.attributes}
    cells = {
        **columns,
        "timestamp": _time(time_ns),
        "metric_name": field,
        "value": _number(value, measure.scale),
        "labels_raw": _label_text({**labels, **_described(field, descriptor), **own, "__name__": field}),
    }
    return [cells[column] for column in dcgm.COLUMNS]


def _field_of(descriptor: Descriptor, attributes: Texts) -> tuple[str, dcgm.Measure]:
    """The DCGM field of the series; else a field with the name of the metric."""
    return field_of(descriptor, attributes) or (descriptor.name, dcgm.Measure(descriptor))


def _described(field: str, descriptor: Descriptor) -> Texts:
    """Labels with the type and the unit of a metric that DCGM does not have."""
    if field in dcgm.FIELDS:
        return {}
    implied = dcgm.implied_descriptor(field)
    if implied is not None and implied.identity == descriptor.identity:
        return {}
    type_ = next(name for name, kind in dcgm.TYPES.items() if kind == descriptor.kind)
    return {dcgm.TYPE: type_} | ({dcgm.UNIT: descriptor.unit} if descriptor.unit else {})


def _resource_labels(about: Texts, columns: Texts) -> Texts:
    """The labels of the resource: those of dcgm-exporter, which repeat columns, and all other attributes."""
    repeated = {"UUID": columns["uuid"], "gpu": columns["gpu_id"]}
    repeated |= {name: columns[name] for name in ("device", "modelName", "Hostname")}
    known = {label: about[attribute] for attribute, label in _IN_LABELS.items() if attribute in about}
    others = {
        dcgm.RESOURCE + name: text
        for name, text in about.items()
        if name not in _IN_COLUMNS and name not in _IN_LABELS and _IMPLIED.get(name) != text
    }
    return {**repeated, **known, **others}


def _label_text(labels: Texts) -> str:
    return ",".join(f'{_label_name(name)}="{_escaped(text)}"' for name, text in sorted(labels.items()))


def _label_name(name: str) -> str:
    return name if _PLAIN_LABEL.fullmatch(name) else f'"{_escaped(name)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _texts(attributes: Iterable[KeyValue]) -> Texts:
    return {attribute.key: _text(attribute.value) for attribute in attributes}


def _text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    return str(getattr(value, kind)) if kind else ""


def _time(time_ns: int) -> str:
    """RFC 3339 in UTC, with nanoseconds unless they are 0."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"


def _number(value: float, scale: float) -> str:
    """The shortest number in the field's unit that the csv receiver scales back to exactly this value."""
    exact = value / scale
    rounded = (float(f"{exact:.{digits}g}") for digits in (6, 9, 12, 15, 16))
    near = (exact, math.nextafter(exact, math.inf), math.nextafter(exact, -math.inf))
    best = next((number for number in (*rounded, *near) if _scaled(number, scale) == value), exact)
    return repr(best).removesuffix(".0")


def _scaled(number: float, scale: float) -> float:
    return number / round(1 / scale) if scale < 1 else number * scale


class CsvExporterConfig(ComponentConfig):
    """The file to write."""

    path: Path
    """The path of the file. Its directory must exist."""
    append: bool = False
    """Append to an existing file. Else it is emptied at start."""
    file_permissions: Permissions = OWNER_AND_GROUP
    """The permissions of the file if it is created, in octal. The umask applies too."""


class CsvExporter(Exporter):
    """Writes the metrics of GPUs to a CSV file in dcgm-exporter's long layout. The `csv` receiver replays it."""

    Config = CsvExporterConfig
    stability = "beta"
    signals = frozenset({"metrics"})

    def __init__(self, config: CsvExporterConfig, context: Context) -> None:
        super().__init__(config, context)
        self._file: FileIO | None = None

    async def __aenter__(self) -> Self:
        try:
            self._file = await asyncio.to_thread(self._open)
        except OSError as error:
            raise CannotStart(
                f"{self.context.path}::path: cannot write {self.config.path}: {error.strerror}; choose another path"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._file:
            self._file.close()
        self._file = None

    async def export(self, batch: Batch) -> None:
        try:
            with invalid_is_permanent():
                await asyncio.to_thread(self._write, batch)
        except OSError as error:
            raise Retryable(f"cannot write {self.config.path}: {error.strerror}") from error

    def _open(self) -> FileIO:
        opened: set[str] = self.context.kept.setdefault("opened", set())  # a reload must not empty the file again
        append = self.config.append or str(self.config.path) in opened
        file = open_appending(self.config.path, self.config.file_permissions)
        opened.add(str(self.config.path))
        if not append and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
        if not os.fstat(file.fileno()).st_size:
            append_whole(file, HEADER.encode())
        return file

    def _write(self, batch: Batch) -> None:
        assert self._file is not None  # noqa: S101  # entered before the first batch
        rows = CsvRows(batch.metrics)
        if rows.text:
            append_whole(self._file, rows.text.encode())
        for reason, count in rows.lost.items():  # after the write: a failed batch is retried
            self.context.drop(count, reason)
