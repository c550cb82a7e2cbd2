"""Histograms whose bounds differ from point to point, and that begin again, against a model that only counts events.

The model knows the values. Nothing is assumed about the bounds: each point has those that it draws.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from otel_zernel_libraries.histograms.explicit import MOST_BOUNDS
from otel_zernel_libraries.histograms.quantiles import histogram_quantiles
from otel_zernel_libraries.histograms.temporality import ToCumulative, ToDelta
from otel_zernel_libraries.histograms.temporality.track import Track, amount_of
from tests.libraries.histograms.temporality.running import RunningConversion, as_cumulative, explicit

values = st.lists(st.integers(1, 60).map(float), max_size=30)
bounds = st.lists(st.integers(0, 64).map(float), max_size=8, unique=True).map(sorted)


def counts_of(events: Iterable[float], bounds: Sequence[float]) -> list[int]:
    counts = [0] * (len(bounds) + 1)
    for value in events:
        counts[bisect_left(bounds, value)] += 1
    return counts


def up_to(point: HistogramDataPoint) -> dict[float, int]:
    """The number of values up to each bound."""
    cumulative, total = {}, 0
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        total += count
        cumulative[bound] = total
    return cumulative


@dataclass
class Report:
    """The new values of a report, its bounds, and whether the sender began again before it."""

    events: list[float]
    bounds: list[float]
    resets: bool = False
    jitter: int = 0
    """Seconds by which the start is later: some senders compute it anew for each point."""


reports = st.lists(st.builds(Report, values, bounds, st.booleans(), st.integers(0, 4)), min_size=1, max_size=8)


def cumulative_points(given_reports: Sequence[Report]) -> list[HistogramDataPoint]:
    """The points of an honest sender: each has all values since the last reset, in its own bounds."""
    since, start, points = list[float](), 1, []
    for number, report in enumerate(given_reports, 1):
        if report.resets:
            since, start = [], 10 * number - 5
        since = [*since, *report.events]
        [point] = explicit(
            start + report.jitter, 10 * number, report.bounds, counts_of(since, report.bounds), sum=sum(since)
        ).histogram.data_points
        points.append(point)
    return points


@given(reports)
def test_each_value_counts_once_whatever_the_bounds_and_resets(given_reports: list[Report]) -> None:
    before: Track | None = None
    for report, point in zip(given_reports, cumulative_points(given_reports), strict=True):
        amount = amount_of(point)
        if before is not None:
            increase = before.increase(amount, point.start_time_unix_nano)
            gained = HistogramDataPoint()
            (amount if increase is None else increase).write(gained)
            assert (increase is None) == report.resets
            assert (gained.count, gained.sum) == (len(report.events), sum(report.events))
            assert sum(gained.bucket_counts) == len(report.events)
        before = Track(amount, point.start_time_unix_nano, point.time_unix_nano)


@given(st.lists(st.integers(0, 64).map(float), max_size=6, unique=True), values, values, bounds, bounds)
def test_the_increase_is_exact_at_each_bound_that_both_points_have(
    common: list[float], old: list[float], new: list[float], first: list[float], second: list[float]
) -> None:
    former, latter = sorted({*common, *first}), sorted({*common, *second})
    [before] = explicit(1, 10, former, counts_of(old, former)).histogram.data_points
    [after] = explicit(1, 20, latter, counts_of([*old, *new], latter)).histogram.data_points
    increase = amount_of(after).minus(amount_of(before))
    assert increase is not None
    gained = HistogramDataPoint()
    increase.write(gained)
    for bound in common:
        assert up_to(gained)[bound] == sum(value <= bound for value in new)


@given(st.lists(st.builds(Report, values, bounds), min_size=1, max_size=8))
def test_totals_of_deltas_with_moving_bounds_never_seem_to_begin_again(given_reports: list[Report]) -> None:
    """What one collector adds up, the next one can subtract again, also if it misses points."""
    running = RunningConversion(ToCumulative)
    totals = []
    for number, report in enumerate(given_reports, 1):
        counts = counts_of(report.events, report.bounds)
        totals += running.points(explicit(number, number + 1, report.bounds, counts, sum=sum(report.events)))
    assert totals[-1].count == sum(len(report.events) for report in given_reports)
    for number, earlier in enumerate(totals):
        for later in totals[number:]:
            increase = amount_of(later).minus(amount_of(earlier))
            assert increase is not None
            gained = HistogramDataPoint()
            increase.write(gained)
            assert gained.count == later.count - earlier.count == sum(gained.bucket_counts)


def test_a_series_with_new_bounds_in_each_report_becomes_its_own_deltas() -> None:
    """1,000 steps in ten reports, each with one more bound, are 1,000 steps."""
    running = RunningConversion(ToDelta)
    steps = [0.05 + (number * 7919 % 1000) / 4000 for number in range(1000)]
    found = []
    for report in range(1, 11):
        bounds = [0.03 * number for number in range(1, report + 1)]
        counts = counts_of(steps[: 100 * report], bounds)
        found += running.points(as_cumulative(explicit(1, 10 * report, bounds, counts, sum=sum(steps[: 100 * report]))))
    assert [point.count for point in found] == [100] * 10
    assert sum(point.sum for point in found) == pytest.approx(sum(steps))


def test_bounds_that_were_thinned_out_among_values_do_not_come_back() -> None:
    """The count up to such a bound would be too low, and a receiver that missed a point would see a reset."""
    running = RunningConversion(ToCumulative)
    totals, events = [], 0
    for number in range(60):
        centers = [1.0 + ((number * 100 + step) * 7919 % 9000) / 1000 for step in range(100)]
        used = sorted({bound for value in centers for bound in (round(value - 0.001, 6), round(value, 6))})
        totals += running.points(explicit(number, number + 1, used, counts_of(centers, used)))
        events += len(centers)
    assert totals[-1].count == events
    assert max(len(point.explicit_bounds) for point in totals) <= MOST_BOUNDS
    for earlier in totals:
        assert amount_of(totals[-1]).minus(amount_of(earlier)) is not None
    assert histogram_quantiles(totals[-1], [0.5, 0.9]) == pytest.approx([5.5, 9.1], rel=0.02)


def test_a_lone_value_keeps_its_narrow_bucket_when_bounds_are_thinned_out() -> None:
    running = RunningConversion(ToCumulative)
    bounds = [1.0 + number / 1000 for number in range(2100)]
    running.points(explicit(0, 1, bounds, [0, *[1] * 2099, 0]))
    [point] = running.points(explicit(1, 2, [99.9, 100.0], [0, 1, 0]))
    [place] = [place for place, bound in enumerate(point.explicit_bounds) if bound == 100.0]
    assert point.bucket_counts[place] == 1
    assert point.explicit_bounds[place - 1] == 99.9
