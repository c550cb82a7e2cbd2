"""Families: the series of one name, and their part of the page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel.exposition.formats import Format
from otel_zernel.exposition.labels import escape, label_text, quoted_name, spell, value_text
from otel_zernel.exposition.names import classic_label
from otel_zernel.exposition.series import Number, Series, exemplar_value
from otel_zernel.exposition.stream import FamilyType

_EXEMPLAR_LENGTH = 128
"""The most characters of an exemplar's labels (OpenMetrics 1.0, "Exemplars")."""


@dataclass(slots=True, eq=False)
class Family:
    """The series of one name."""

    name: str
    kind: FamilyType
    unit: str
    help: str
    samples: tuple[str, ...]
    """The names of its samples."""
    series: dict[str, Series] = field(default_factory=dict)
    """By their labels."""
    has_collided: bool = False
    """Whether it was told that two of them have the same labels."""

    def header(self, format_: Format, *, clashes: bool) -> str:
        """The comments above the samples.

        OpenMetrics leaves `_total` out of a counter's name. A counter whose name has none, or whose shorter name is
        another family's (`clashes`), is of unknown type there.
        """
        name, type_ = self.name, str(self.kind)
        if format_.openmetrics and type_ == "counter":
            shorter = name.removesuffix("_total")
            name, type_ = (name, "unknown") if shorter == name or clashes else (shorter, type_)
        return header(name, type_, self.help, self.unit, format_)

    def lines(self, format_: Format, *, send_timestamps: bool) -> list[str]:
        """The samples: beginnings that are ready-made, and the values of now."""
        series = list(self.series.values())
        if send_timestamps or (format_.openmetrics and any(one.has_exemplars for one in series)):
            return list(_decorated(series, format_, send_timestamps))
        if self.kind in ("gauge", "counter"):
            numbers = cast("list[Number]", series)
            if math.isfinite(sum([one.value for one in numbers])):
                return [f"{one.prefix}{one.value!r}\n" for one in numbers]
            return [f"{one.prefix}{spell(one.value)}\n" for one in numbers]
        return [f"{prefix}{spell(value)}\n" for one in series for prefix, value, _ in one.samples()]


def header(name: str, type_: str, help_: str, unit: str, format_: Format) -> str:
    """The comments above a family's samples."""
    shown = quoted_name(name)
    has_unit = format_.openmetrics and unit and name.endswith(f"_{unit}")
    last = f"# UNIT {shown} {unit}\n" if has_unit else ""
    return f"# HELP {shown} {escape(help_, quotes=format_.openmetrics)}\n# TYPE {shown} {type_}\n{last}"


def _decorated(series: list[Series], format_: Format, send_timestamps: bool) -> Iterator[str]:
    for one in series:
        time = f" {_timestamp(one.time, format_)}" if send_timestamps and one.time else ""
        for prefix, value, exemplar in one.samples():
            behind = _exemplar_text(exemplar) if exemplar is not None and format_.openmetrics else ""
            yield f"{prefix}{spell(value)}{time}{behind}\n"


def _timestamp(time_ns: int, format_: Format) -> str:
    """Seconds in OpenMetrics, milliseconds in the older format."""
    milliseconds = time_ns // 1_000_000
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}" if format_.openmetrics else str(milliseconds)


def _exemplar_text(exemplar: Exemplar) -> str:
    ids = {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()}
    others = {classic_label(pair.key): value_text(pair.value) for pair in exemplar.filtered_attributes}
    labels = others | ids
    if sum(len(name) + len(value) for name, value in labels.items()) > _EXEMPLAR_LENGTH:
        labels = ids
    time = f" {_timestamp(exemplar.time_unix_nano, Format(openmetrics=True))}" if exemplar.time_unix_nano else ""
    return f" # {{{label_text(labels)}}} {spell(exemplar_value(exemplar))}{time}"
