"""Series of all kinds with any points, drawn by hypothesis, and their OTLP."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2
from typing import Any, Literal

from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    MetricsData,
)

from otel_zernel_libraries.store.queries.numbers import Windows

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
END = 60
"""Seconds of all points."""
DrawnKind = Literal["gauge", "level", "counter", "delta", "explicit", "exponential", "summary"]
"""`level` is a cumulative sum that may fall."""
KINDS: Sequence[DrawnKind] = ("gauge", "level", "counter", "delta", "explicit", "exponential", "summary")
BOUNDS = ([1.0, 2.0, 5.0], [0.5, 2.0], [-1.0, 0.0, 3.0, 10.0])


@dataclass(slots=True, frozen=True)
class DrawnPoint:
    """A point with everything that it contains, not only since the one before."""

    second: int
    start: int | None
    """The second of its start."""
    value: float | int | None = None
    """Of numbers; None for NO_RECORDED_VALUE."""
    observed: tuple[float, ...] = ()
    """Of distributions."""
    bounds: tuple[float, ...] | None = None
    """Of an explicit histogram whose sender moves its bounds; else those of the series."""


@dataclass(slots=True, frozen=True)
class DrawnSeries:
    """One series."""

    kind: DrawnKind
    host: str
    gpu: int
    is_cumulative: bool
    bounds: Sequence[float]
    """Of explicit histograms."""
    scale: int
    """Of exponential histograms."""
    points: Sequence[DrawnPoint]

    @property
    def moves(self) -> bool:
        """Whether the sender chooses other bounds for each point."""
        return any(point.bounds is not None for point in self.points)

    @property
    def metric(self) -> str:
        return f"{self.kind} {'cumulative' if self.is_cumulative else 'delta'}"

    def bucket(self, value: float) -> float:
        """The bucket of an observation: its upper bound, or its index in exponential histograms.

        The bucket of zero has the index minus infinity. All observations of a summary are in one bucket.
        """
        if self.kind == "explicit":
            return [*self.bounds, inf][bisect_left(self.bounds, value)]
        return 0 if self.kind == "summary" else index_of(value, self.scale) if value else -inf


def index_of(value: float, scale: int) -> int:
    """The index of the exponential bucket of a positive value."""
    return ceil(log2(value) * (1 << scale)) - 1


INTEGERS = st.integers(0, 50) | st.sampled_from([2**53 + 1, 2**60 + 3])
DOUBLES = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
OBSERVATIONS = st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.5, 2.5, 4.0, 9.0, 77.0]), max_size=4)

ANY_BOUNDS = st.lists(st.floats(-10, 100).map(lambda value: round(value, 1)), max_size=6, unique=True).map(sorted)


@st.composite
def _series(draw: st.DrawFn) -> DrawnSeries:
    kind = draw(st.sampled_from(KINDS))
    is_cumulative = kind in ("level", "counter", "summary") or (kind != "delta" and draw(st.booleans()))
    seconds = sorted(draw(st.sets(st.integers(0, END - 1), min_size=1, max_size=8)))
    is_distribution = kind in ("explicit", "exponential", "summary")
    moves = kind == "explicit" and draw(st.booleans())
    distributions = _distributions(seconds, is_cumulative=is_cumulative, moves=moves)
    points = draw(distributions if is_distribution else _numbers(kind, seconds))
    return DrawnSeries(
        kind=kind,
        host=draw(st.sampled_from(["a", "b"])),
        gpu=draw(st.integers(0, 1)),
        is_cumulative=is_cumulative,
        bounds=draw(st.sampled_from(BOUNDS)),
        scale=draw(st.integers(0, 3)),
        points=points,
    )


JITTER = st.sampled_from([0, 0, 1])
"""Some senders compute their start anew for each point."""


@st.composite
def _numbers(draw: st.DrawFn, kind: DrawnKind, seconds: Sequence[int]) -> list[DrawnPoint]:
    """Counters grow, and begin again at zero."""
    increments = draw(st.sampled_from([INTEGERS, st.floats(0, 1e3).map(lambda value: round(value, 3))]))
    with_start, start, found = draw(st.booleans()), draw(st.integers(0, 5)), list[DrawnPoint]()
    total: float = 0
    for second in seconds:
        if not draw(st.integers(0, 5)):
            found.append(DrawnPoint(second, None))
            continue
        if kind != "counter":
            found.append(DrawnPoint(second, None, draw(DOUBLES if kind == "gauge" else DOUBLES | INTEGERS)))
            continue
        if not draw(st.integers(0, 3)):
            start, total = second, 0
        total += draw(increments)
        found.append(DrawnPoint(second, min(start + draw(JITTER), second) if with_start else None, total))
    return found


@st.composite
def _distributions(draw: st.DrawFn, seconds: Sequence[int], *, is_cumulative: bool, moves: bool) -> list[DrawnPoint]:
    """If the bounds move, only the start says that a series began again."""
    with_start, start, found = moves or draw(st.booleans()), draw(st.integers(0, 5)), list[DrawnPoint]()
    known: list[float] = []
    for second in seconds:
        if not is_cumulative or (not draw(st.integers(0, 3)) and (not moves or second > start)):
            start, known = second, []
        known = [*known, *draw(OBSERVATIONS)]
        bounds = tuple(draw(ANY_BOUNDS)) if moves else None
        found.append(
            DrawnPoint(second, min(start + draw(JITTER), second) if with_start else None, 0, tuple(known), bounds)
        )
    return found


def drawn_series() -> st.SearchStrategy[list[DrawnSeries]]:
    return st.lists(_series(), min_size=1, max_size=5, unique_by=lambda one: (one.metric, one.host, one.gpu))


def drawn_labels() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(["host_id", "gpu_id", "nothing"]), max_size=2, unique=True)


@st.composite
def drawn_windows(draw: st.DrawFn) -> Windows:
    start = draw(st.integers(0, END - 1))
    end = draw(st.integers(start + 1, END + 5))
    return Windows(BEGIN + start * SECOND, BEGIN + end * SECOND, draw(st.integers(1, END)) * SECOND)


def encoded(series: Iterable[DrawnSeries]) -> MetricsData:
    data = MetricsData()
    for one in series:
        resource = data.resource_metrics.add()
        resource.resource.attributes.add(key="host.name").value.string_value = one.host
        metric = resource.scope_metrics.add().metrics.add(name=one.metric)
        points = _points_of(metric, one)
        for point in one.points:
            added = points.add(time_unix_nano=BEGIN + point.second * SECOND)
            added.attributes.add(key="zernel.gpu.index").value.int_value = one.gpu
            if point.start is not None:
                added.start_time_unix_nano = BEGIN + point.start * SECOND
            _fill(added, one, point)
    return data


def _points_of(metric: Metric, series: DrawnSeries) -> Any:
    """The points of a metric, after its kind is set."""
    kinds = {"explicit": "histogram", "exponential": "exponential_histogram", "summary": "summary", "gauge": "gauge"}
    data = getattr(metric, kinds.get(series.kind, "sum"))
    data.SetInParent()
    if series.kind not in ("gauge", "summary"):
        data.aggregation_temporality = 2 if series.is_cumulative else 1
    if series.kind in ("counter", "delta"):
        data.is_monotonic = True
    return data.data_points


def _fill(added: Any, series: DrawnSeries, point: DrawnPoint) -> None:
    if series.kind in ("explicit", "exponential", "summary"):
        added.count, added.sum = len(point.observed), sum(point.observed)
        if series.kind == "explicit":
            _fill_explicit(added, series.bounds if point.bounds is None else point.bounds, point.observed)
        elif series.kind == "exponential":
            _fill_exponential(added, series, point.observed)
    elif point.value is None:
        added.flags = 1
    elif isinstance(point.value, int):
        added.as_int = point.value
    else:
        added.as_double = point.value


def _fill_explicit(added: HistogramDataPoint, bounds: Sequence[float], observed: Sequence[float]) -> None:
    added.explicit_bounds.extend(bounds)
    counts = [0] * (len(bounds) + 1)
    for value in observed:
        counts[bisect_left(bounds, value)] += 1
    added.bucket_counts.extend(counts)


def _fill_exponential(added: ExponentialHistogramDataPoint, series: DrawnSeries, observed: Sequence[float]) -> None:
    added.scale, added.zero_count = series.scale, observed.count(0.0)
    indexes = [index_of(value, series.scale) for value in observed if value]
    if indexes:
        added.positive.offset = min(indexes)
        counts = [indexes.count(index) for index in range(min(indexes), max(indexes) + 1)]
        added.positive.bucket_counts.extend(counts)
