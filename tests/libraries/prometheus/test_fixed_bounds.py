"""Bounds never move: all series and all scrapes of a metric have the same ones."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, ExponentialHistogram, Metric

from tests.libraries.prometheus.histograms.filled import filled
from tests.libraries.prometheus.shown import OPENMETRICS, Shown
from tests.otlp import CUMULATIVE, DELTA, NOW, data, exponential, histogram

STEPS = st.lists(st.floats(1e-9, 1e9), max_size=30)


def bounds_of_series(shown: Shown) -> dict[str, list[str]]:
    """The texts of `le`, by job."""
    found: dict[str, list[str]] = {}
    for line in shown.lines():
        if bucket := re.search(r'_bucket{.*job="(\w+)".*le="([^"]+)"} ', line):
            found.setdefault(bucket[1], []).append(bucket[2])
    return found


def of_values(values: list[float], scale: int, time: int) -> Metric:
    """A cumulative histogram of the values."""
    buckets = filled(values, scale)
    offset = min(buckets.positive, default=0)
    counts = [buckets.positive.get(index, 0) for index in range(offset, max(buckets.positive, default=-1) + 1)]
    return exponential("a", scale, (offset, counts), time=time)


@given(st.lists(st.tuples(STEPS, st.integers(-2, 2)), min_size=2, max_size=4))
def test_series_of_any_range_and_scale_have_the_same_bounds(distributions: list[tuple[list[float], int]]) -> None:
    shown = Shown()
    for time, (values, scale) in enumerate(distributions):
        shown.update(of_values(values, scale, NOW + time), resource={"service.name": f"job{time}"})
    every = bounds_of_series(shown)
    assert len(every) == len(distributions)
    assert len({tuple(one) for one in every.values()}) == 1


@given(STEPS, STEPS, st.integers(-2, 3), st.integers(-2, 3), st.booleans())
def test_no_bucket_decreases_whatever_the_scale_does(
    values: list[float], more: list[float], first: int, second: int, starts_move: bool
) -> None:
    """Some senders compute their start anew for each point."""
    shown = Shown()
    totals: list[list[int]] = []
    for time, (its, scale) in enumerate(((values, first), (values + more, second), (values + more + more, first))):
        metric = of_values(its, scale, NOW + time)
        metric.exponential_histogram.data_points[0].start_time_unix_nano = NOW - 10 + time * starts_move
        shown.update(metric)
        totals.append([int(line.split()[-1]) for line in shown.lines() if "_bucket" in line])
    assert all(before <= after for one, other in pairwise(totals) for before, after in zip(one, other, strict=True))


def test_a_restarted_sender_begins_at_its_own_counts(shown: Shown) -> None:
    shown.update(of_values([0.9] * 5, 3, NOW))
    shown.update(of_values([0.9] * 6, -1, NOW + 1))
    shown.update(of_values([0.9] * 2, 3, NOW + 2))
    assert {int(line.split()[-1]) for line in shown.lines() if "_bucket" in line} == {0, 2}


def test_a_sender_that_moves_its_bounds_is_shown_on_the_grid_without_a_loss() -> None:
    shown = Shown(histogram_bounds={"b": (1.0, 2.0, 4.0)})
    slow = Exemplar(as_double=1.9, trace_id=b"\1" * 16)
    shown.update(histogram("b", [0.5, 1.9], [1, 2, 0], 3.0, time=1, temporality=DELTA, unit="", exemplars=(slow,)))
    assert shown.lines()[0] == 'b_bucket{le="0.5"} 1'
    shown.update(histogram("b", [0.7, 3.0], [4, 0, 1], 9.0, time=2, temporality=DELTA, unit=""))
    assert shown.lines(OPENMETRICS) == [
        'b_bucket{le="1.0"} 5',
        f'b_bucket{{le="2.0"}} 7 # {{trace_id="{"01" * 16}"}} 1.9',
        'b_bucket{le="4.0"} 7',
        'b_bucket{le="+Inf"} 8',
        "b_count 8",
        "b_sum 12.0",
    ]


def test_the_other_series_of_a_family_whose_bounds_move_are_on_the_grid_too(shown: Shown) -> None:
    for job, bounds in (("one", [0.5]), ("two", [0.25]), ("one", [0.75])):
        shown.update(
            histogram("a", bounds, [1, 1], 1.0, time=1 if job == "two" else round(bounds[0] * 4), temporality=DELTA),
            resource={"service.name": job},
        )
    every = bounds_of_series(shown)
    assert every["one"] == every["two"]
    assert len(every["one"]) > 50


def test_cumulative_bounds_that_move_are_shown_on_the_grid() -> None:
    shown = Shown(histogram_bounds={"*": (1.0, 2.0)})
    shown.update(histogram("a", [0.5], [1, 1], 2.0, time=NOW))
    shown.update(histogram("a", [0.5, 1.5], [1, 1, 1], 4.0, time=NOW + 1))
    assert [line.split()[-1] for line in shown.lines()] == ["1", "2", "3", "3", "4.0"]


def test_a_restarted_sender_may_choose_other_bounds(shown: Shown) -> None:
    shown.update(histogram("a", [0.5], [3, 1], 2.0, time=NOW))
    shown.update(histogram("a", [0.25, 1.5], [1, 1, 0], 1.0, time=NOW + 1))
    assert shown.lines()[0] == 'a_seconds_bucket{le="0.25"} 1'


def test_stable_explicit_bounds_are_those_of_the_sender(shown: Shown) -> None:
    for time in (NOW, NOW + 1):
        shown.update(histogram("a", [0.1, 1.0, 10.0], [1, 2, 3, 4], 5.0, time=time))
    assert [line for line in shown.lines() if "le=" in line] == [
        'a_seconds_bucket{le="0.1"} 1',
        'a_seconds_bucket{le="1.0"} 3',
        'a_seconds_bucket{le="10.0"} 6',
        'a_seconds_bucket{le="+Inf"} 10',
    ]


def test_the_first_glob_that_matches_the_opentelemetry_name_chooses_the_bounds() -> None:
    shown = Shown(histogram_bounds={"zernel.step.*": (0.5, 2.0), "*.size": (8.0,)})
    for name in ("zernel.step.duration", "batch.size", "other"):
        shown.update(exponential(name, 0, (0, [1])))
    counts = {name: shown.text().count(f"{name}_seconds_bucket") for name in ("zernel_step_duration", "batch_size")}
    assert counts == {"zernel_step_duration": 3, "batch_size": 2}
    assert shown.text().count("other_seconds_bucket") > 50


def test_a_histogram_without_values_has_all_bounds_at_zero(shown: Shown) -> None:
    empty = Metric(name="a", unit="s", exponential_histogram=ExponentialHistogram(aggregation_temporality=CUMULATIVE))
    empty.exponential_histogram.data_points.add(time_unix_nano=NOW)
    shown.page.update(data(empty), 0)
    lines = [line for line in shown.lines() if "_bucket" in line]
    assert len(lines) > 50
    assert {line.split()[-1] for line in lines} == {"0"}
