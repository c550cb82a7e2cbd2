"""What requests ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from otel_zernel.text import quoted
from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_extensions.query.requests.cursors import mark_of, read_cursor
from otel_zernel_extensions.query.requests.parameters import Parameters, wrong
from otel_zernel_libraries.store.queries.cells import quantile_of
from otel_zernel_libraries.store.queries.numbers import Windows
from otel_zernel_libraries.store.queries.pages import Key, Order
from otel_zernel_libraries.store.queries.series import SHORT_NAMES, SeriesFilter
from otel_zernel_libraries.store.rows.points import LATEST_TIME

FILTERS: Final = (*SHORT_NAMES, "metric", "label")
TIMES: Final = ("start_time", "end_time", "time_range")
ORDERS: Final = ("time", "-time", "series")
FORMATS: Final = ("json", "csv", "arrow")
FUNCTIONS: Final = ("avg", "min", "max", "sum", "count", "rate", "p50", "p90", "p99")
FIELDS: Final = ("timestamp", "metric", "value", "unit", "type", *SHORT_NAMES, "labels", "distribution")
_PAGE: Final = 100
_MOST_GROUPS: Final = 8
_DAY_NS: Final = 86_400 * 10**9


def wanted_series(parameters: Parameters) -> SeriesFilter:
    """The filter by labels."""
    labels = {name: frozenset(parameters.all(name)) for name in SHORT_NAMES if parameters.all(name)}
    named = {**parameters.labels, **labels}
    return SeriesFilter(frozenset(parameters.all("metric")), tuple(sorted(named.items())))


def wanted_times(parameters: Parameters, now_ns: int, default_ns: int | None = None) -> tuple[int, int]:
    """The first ns, and the first after the range. Without a start, `default_ns` before the end, or all times."""
    length = parameters.range_ns("time_range")
    start, end = parameters.time_ns("start_time"), parameters.time_ns("end_time")
    if length is not None and start is not None:
        wrong("time_range", "time_range and start_time exclude each other: give one of them, with or without end_time")
    if length is None and start is None:
        length = default_ns
    if length is not None:
        end = now_ns if end is None else end
        start = max(end - length, 0)
    start, end = start or 0, LATEST_TIME + 1 if end is None else end
    if start >= end:
        wrong("end_time", "end_time must be after start_time")
    return start, end


def wanted_format(parameters: Parameters, accepted: str) -> str | None:
    """`json`, `csv` or `arrow` by the parameter, else by the header; None if the client accepts none of them."""
    if chosen := parameters.choice("format", FORMATS):
        return chosen
    if not accepted.strip():
        return "json"
    names = {"text/csv": "csv", "application/vnd.apache.arrow.stream": "arrow", "application/json": "json"}
    names |= {"*/*": "json", "application/*": "json", "text/*": "csv"}
    for quality, kind in sorted(_accepted(accepted), key=lambda choice: -choice[0]):
        if quality > 0 and kind in names:
            return names[kind]
    return None


def _accepted(header: str) -> list[tuple[float, str]]:
    choices = []
    for part in header.split(",")[:50]:
        kind, *options = [piece.strip().lower() for piece in part.split(";")]
        text = next((option[2:] for option in options if option.startswith("q=")), "1")
        try:
            choices.append((float(text), kind))
        except ValueError:
            continue
    return choices


@dataclass(slots=True, frozen=True)
class WantedPage:
    """A page of points."""

    series: SeriesFilter
    start_ns: int
    end_ns: int
    order: Order
    number: int | None
    """The number of the page, from 1; None with a cursor."""
    size: int
    after: Key | None
    mark: bytes
    fields: Sequence[str]

    PARAMETERS = (*FILTERS, *TIMES, "page", "page_size", "cursor", "sort", "fields", "format")

    @classmethod
    def of(cls, parameters: Parameters, config: QueryConfig, now_ns: int) -> "WantedPage":
        """Raises `ParameterError`."""
        size = parameters.integer("page_size", min(_PAGE, config.max_page_size), 1, config.max_page_size)
        order = cast("Order", parameters.choice("sort", ORDERS) or "time")
        series, times = wanted_series(parameters), wanted_times(parameters, now_ns)
        mark = _mark(parameters, order)
        cursor = parameters.text("cursor")
        if cursor is not None and "page" in parameters:
            wrong("cursor", "cursor and page exclude each other: a cursor continues after the page before")
        number = None if cursor is not None else parameters.integer("page", 1, 1, 10**9)
        if number is not None and (number - 1) * size > config.max_offset:
            wrong("page", f"page {number} is too deep: at most {config.max_offset} points may precede it; use cursor")
        after = None if cursor is None else read_cursor(cursor, mark)
        return cls(series, *times, order, number, size, after, mark, _fields(parameters))

    @property
    def offset(self) -> int:
        return 0 if self.number is None else (self.number - 1) * self.size


@dataclass(slots=True, frozen=True)
class WantedAggregates:
    """Aggregates by labels and time."""

    series: SeriesFilter
    labels: tuple[str, ...]
    windows: Windows
    functions: tuple[str, ...]

    PARAMETERS = (*FILTERS, *TIMES, "group_by", "step", "functions", "format")

    @classmethod
    def of(cls, parameters: Parameters, now_ns: int) -> "WantedAggregates":
        """Raises `ParameterError`. Without a time, the last 24 h."""
        start, end = wanted_times(parameters, now_ns, _DAY_NS)
        end = min(end, max(now_ns, start + 1)) if "end_time" not in parameters else end
        step = parameters.range_ns("step") or end - start
        labels = tuple(dict.fromkeys(parameters.words("group_by")))
        if len(labels) > _MOST_GROUPS:
            wrong("group_by", f"group_by has {len(labels)} labels; use at most {_MOST_GROUPS}")
        return cls(wanted_series(parameters), labels, Windows(start, end, step), _functions(parameters))

    @property
    def quantiles(self) -> tuple[float, ...]:
        return tuple(sorted({quantile_of(name) for name in self.functions if name[0] == "p"}))


def _functions(parameters: Parameters) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(parameters.words("functions"))) or FUNCTIONS
    for name in names:
        if name not in FUNCTIONS:
            try:
                quantile_of(name)
            except ValueError:
                wrong("functions", f"functions has {quoted(name)}; use {', '.join(FUNCTIONS)} or another p0 to p100")
    return names


def _fields(parameters: Parameters) -> Sequence[str]:
    names = [*dict.fromkeys(parameters.words("fields"))]
    for name in names:
        if name not in FIELDS and not name.startswith("labels."):
            wrong("fields", f"fields has {quoted(name)}; use {', '.join(FIELDS)} or labels.NAME")
    return names or FIELDS


def _mark(parameters: Parameters, order: str) -> bytes:
    parts: dict[str, Sequence[str]] = {name: parameters.all(name) for name in (*SHORT_NAMES, "metric", *TIMES)}
    parts |= {f"label[{name}]": sorted(values) for name, values in parameters.labels.items()}
    return mark_of({**{name: values for name, values in parts.items() if values}, "sort": [order]})
