"""The points of a page as values of JSON."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from otel_zernel_libraries.store.queries.labels import label_text
from otel_zernel_libraries.store.queries.series import SeriesEntry
from otel_zernel_libraries.store.rows.points import Row, unsigned64

_NS: Final = 10**9
Record = Mapping[str, Any]


def records_of(points: Iterable[tuple[SeriesEntry, Row]], fields: Sequence[str]) -> list[Record]:
    """The fields of points. A field that a point lacks is None. The labels of a series are made once."""
    known: dict[SeriesEntry, Record] = {}
    found: list[Record] = []
    for series, row in points:
        if (common := known.get(series)) is None:
            common = known[series] = {name: _of_series(name, series) for name in fields}
        own = {name: describe(series, row) for name, describe in _OF_POINT.items() if name in common}
        found.append({**common, **own})
    return found


def _of_series(name: str, series: SeriesEntry) -> Any:
    if name in ("metric", "unit", "type"):
        return getattr(series, name)
    if name == "labels":
        return {key: label_text(value) for key, value in {**series.resource, **series.attributes}.items()}
    return None if name in _OF_POINT else series.label(name.removeprefix("labels."))


def _value(series: SeriesEntry, row: Row) -> Any:
    return number(row[2] if row[2] is not None else row[3]) if series.type in ("gauge", "sum") else None


def _distribution(series: SeriesEntry, row: Row) -> Any:
    describe = _DISTRIBUTIONS.get(series.type)
    return describe(row) if describe else None


def time_text(ns: int) -> str:
    """RFC 3339 in UTC, with all nine digits of a second."""
    seconds, rest = divmod(ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest:09d}Z"


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
_OF_POINT: Final = {
    "timestamp": lambda series, row: time_text(row[1]),
    "value": _value,
    "distribution": _distribution,
}
"""The fields that differ between the points of a series."""
