"""Series have the right start times, end when their entries do, and keep within the limit."""

from typing import Any

import pytest

from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_receivers.bcc.config import BccMetricConfig
from otel_zernel_receivers.bcc.programs import MetricSeries

ATTACHED, FIRST, SECOND, THIRD = 100, 200, 300, 400
PID = {"name": "process.pid", "field": "pid", "decoders": ["pid"]}


class Scraped:
    """The series of one metric, with what they dropped."""

    def __init__(self, key: list[str], fields: tuple[str, ...] = ("",), **options: Any) -> None:
        config = {"table": "t", "name": "m", "type": "sum", **options}
        self.series = MetricSeries(BccMetricConfig.model_validate(config), key, fields)
        self.series.restart(ATTACHED)
        self.dropped: list[int] = []

    def __call__(self, rows: list[Any], time_ns: int) -> dict[tuple[Any, ...], Any]:
        metric = self.series.metric(rows, time_ns, self.dropped.append)
        found = {}
        for point in getattr(metric, metric.WhichOneof("data") or "").data_points:
            labels = tuple(pair.value.string_value or pair.value.int_value for pair in point.attributes)
            found[labels] = None if has_no_value(point) else point
        return found


def test_a_counter_starts_when_its_program_was_attached() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    point = scraped([[[7], [3]]], FIRST)[7,]
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (3, ATTACHED, FIRST)


def test_an_entry_that_comes_later_has_started_after_the_last_scrape() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]]], FIRST)
    points = scraped([[[7], [4]], [[8], [1]]], SECOND)
    assert [points[pid,].start_time_unix_nano for pid in (7, 8)] == [ATTACHED, FIRST]


def test_an_entry_that_is_gone_ends_its_series_once() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]], [[8], [1]]], FIRST)
    assert scraped([[[8], [1]]], SECOND)[7,] is None
    assert (7,) not in scraped([[[8], [1]]], THIRD)


def test_an_entry_that_was_deleted_and_is_there_again_starts_anew() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]]], FIRST)
    scraped([], SECOND)
    assert scraped([[[7], [1]]], THIRD)[7,].start_time_unix_nano == SECOND


def test_a_counter_that_falls_starts_anew() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]]], FIRST)
    assert scraped([[[7], [2]]], SECOND)[7,].start_time_unix_nano == FIRST


def test_a_restart_is_a_new_start_and_ends_what_does_not_come_again() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]], [[8], [3]]], FIRST)
    scraped.series.restart(SECOND)
    points = scraped([[[7], [5]]], THIRD)
    assert points[7,].start_time_unix_nano == SECOND
    assert points[8,] is None


def test_entries_with_the_same_labels_are_added_up() -> None:
    scraped = Scraped(["pid", "comm"], labels=[{"name": "comm", "field": "comm"}])
    points = scraped([[[1, "a\0"], [3]], [[2, "a"], [4]], [[3, "b"], [1]]], FIRST)
    assert {labels: point.as_int for labels, point in points.items()} == {("a",): 7, ("b",): 1}


def test_series_above_the_limit_are_counted_and_known_ones_stay() -> None:
    scraped = Scraped(["pid"], labels=[PID], max_series=2)
    scraped([[[7], [1]], [[8], [1]]], FIRST)
    points = scraped([[[5], [1]], [[6], [1]], [[7], [2]], [[8], [2]]], SECOND)
    assert (sorted(points), scraped.dropped) == ([(7,), (8,)], [2])


def test_a_gauge_has_no_start_and_is_scaled() -> None:
    scraped = Scraped([""], type="gauge", scale=1024)
    point = scraped([[[0], [3]]], FIRST)[()]
    assert (point.as_double, point.start_time_unix_nano) == (3072, 0)


def test_a_metric_takes_one_field_of_a_structure() -> None:
    scraped = Scraped([""], ("calls", "bytes"), value="bytes")
    assert scraped([[[0], [3, 4096]]], FIRST)[()].as_int == 4096


def test_a_histogram_has_the_sum_that_its_table_keeps_and_else_none() -> None:
    rows = [[[1], [2]], [[3], [5]], [[40], [900]]]
    buckets = {"min": 1, "max": 3}
    point = Scraped([""], type="histogram", buckets={**buckets, "sum_slot": 40}, scale=0.001)(rows, FIRST)[()]
    assert (list(point.bucket_counts), point.count, point.sum) == ([2, 0, 5, 0], 7, 0.9)
    assert list(point.explicit_bounds) == [0.001, 0.003, 0.007]
    assert not Scraped([""], type="histogram", buckets=buckets)(rows, FIRST)[()].HasField("sum")


@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
def test_a_counter_above_the_largest_integer_stays_there(value: int) -> None:
    assert Scraped([""])([[[0], [value]]], FIRST)[()].as_int == 2**63 - 1
