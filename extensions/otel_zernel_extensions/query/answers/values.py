"""The points of a page as values of JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from otel_zernel.store.queries.catalogue import SeriesEntry
from otel_zernel.store.queries.labels import SHORT_NAMES, label_text
from otel_zernel.store.rows.integers import unsigned64
from otel_zernel.store.rows.points import Row

_NS: Final = 10**9
Record = Mapping[str, Any]


def record_of(series: SeriesEntry, row: Row, fields: Sequence[str]) -> Record:
    """The fields of a point. A field that the point lacks is None."""
    return {name: _field(name, series, row) for name in fields}


def _field(name: str, series: SeriesEntry, row: Row) -> Any:
    if name in ("metric", "unit", "type"):
        return getattr(series, name)
    if name == "timestamp":
        return time_text(row[1])
    if name == "value":
        return number(row[2] if row[2] is not None else row[3]) if series.type in ("gauge", "sum") else None
    if name == "labels":
        return {key: label_text(value) for key, value in {**series.resource, **series.attributes}.items()}
    if name == "distribution":
        describe = _DISTRIBUTIONS.get(series.type)
        return describe(row) if describe else None
    return series.label(name.removeprefix("labels."))


def time_text(ns: int) -> str:
    """RFC 3339 in UTC, with all nine digits of a second."""
    seconds, rest = divmod(ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def number(value: float | int | None) -> float | int | str | None:
    """A number for JSON; NaN and the infinities are text, as in OTLP's JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _histogram(row: Row) -> Record:
    return {**_totals(row), "bounds": _numbers(row[8]), "counts": _counts(row[9])}


def _exponential(row: Row) -> Record:
    return {
        **_totals(row),
        "scale": row[8],
        "zero_count": unsigned64(row[9]),
        "zero_threshold": number(row[10]),
        "positive": {"offset": row[11] or 0, "counts": _counts(row[12])},
        "negative": {"offset": row[13] or 0, "counts": _counts(row[14])},
    }


def _summary(row: Row) -> Record:
    quantiles = [{"quantile": one, "value": number(value)} for one, value in zip(row[6], row[7], strict=True)]
    return {"count": unsigned64(row[4]), "sum": number(row[5]), "quantiles": quantiles}


def _totals(row: Row) -> Record:
    return {
        "count": unsigned64(row[4]),
        "sum": number(row[5]),
        "min": number(row[6]),
        "max": number(row[7]),
    }


def _numbers(values: Iterable[float]) -> list[Any]:
    return [number(value) for value in values]


def _counts(values: Iterable[int] | None) -> list[int]:
    return [unsigned64(value) for value in values or ()]


_DISTRIBUTIONS: Final = {
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
TEXT_FIELDS: Final = ("timestamp", "metric", "unit", "type", *SHORT_NAMES)
