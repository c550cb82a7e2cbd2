"""The start times of cumulative series, and the ends of all series."""

import pytest

from tests.receivers.prometheus.parts import REPORT, SECOND, TextTarget
from tests.receivers.prometheus.serving import ended, metrics_of, series_of


def starts(target: TextTarget, *values: float) -> list[float]:
    """The start times of a counter in s, for scrapes 10 s apart from 100 s on."""
    found = []
    for number, value in enumerate(values):
        batch = target.scrape(f"# TYPE c counter\nc {value}\n", 100 + 10 * number)
        found.append(metrics_of(batch)["c"].sum.data_points[0].start_time_unix_nano / SECOND)
    return found


def test_a_counter_starts_at_its_first_scrape_and_after_a_reset_at_the_scrape_before() -> None:
    assert starts(TextTarget(), 5, 6, 6, 1, 2, 0) == [100, 100, 100, 120, 120, 140]


def test_a_start_survives_new_series_and_failed_scrapes() -> None:
    target = TextTarget()
    assert starts(target, 5) == [100]
    target.series.end(105 * SECOND)
    batch = target.scrape("# TYPE c counter\nc 6\n# TYPE d counter\nd 1\n", 110)
    assert [metrics_of(batch)[n].sum.data_points[0].start_time_unix_nano // SECOND for n in "cd"] == [100, 110]


def test_resets_are_found_in_histograms_and_summaries_too() -> None:
    text = "# TYPE h histogram\nh_count {0}\nh_sum 1\n# TYPE s summary\ns_count {0}\ns_sum 1\n"
    target = TextTarget()
    for second, count in ((100, 5), (110, 2)):
        found = metrics_of(target.scrape(text.format(count), second))
    assert found["h"].histogram.data_points[0].start_time_unix_nano == 100 * SECOND
    assert found["s"].summary.data_points[0].start_time_unix_nano == 100 * SECOND
    found = metrics_of(target.scrape(text.format(1), 120))
    assert found["h"].histogram.data_points[0].start_time_unix_nano == 110 * SECOND


def test_created_times_are_starts_and_no_series() -> None:
    text = "# TYPE c counter\nc_total 5\nc_created 90.5\n# TYPE h histogram\nh_count 1\nh_sum 1\nh_created 91\n"
    batch = TextTarget().scrape(text, openmetrics=True)
    found = metrics_of(batch)
    assert found["c_total"].sum.data_points[0].start_time_unix_nano == 90.5 * SECOND
    assert found["h"].histogram.data_points[0].start_time_unix_nano == 91 * SECOND
    assert not {"c_created", "h_created"} & found.keys()


def test_a_start_is_never_after_its_point() -> None:
    batch = TextTarget().scrape("# TYPE c counter\nc_total 5\nc_created 500\n", openmetrics=True)
    point = metrics_of(batch)["c_total"].sum.data_points[0]
    assert point.start_time_unix_nano == point.time_unix_nano == 100 * SECOND


def test_a_series_that_vanishes_ends_once_and_may_return() -> None:
    target = TextTarget()
    target.scrape('a{x="1"} 1\na{x="2"} 2\nb 1\n', 100)
    batch = target.scrape('a{x="1"} 1\n', 110)
    assert ended(batch) == {"a", "b"}
    assert len(series_of(batch)) == 1 + len(REPORT)
    assert batch.point_count == 3 + len(REPORT)
    assert ended(target.scrape('a{x="1"} 1\n', 120)) == set()
    assert ended(target.scrape('a{x="1"} 1\nb 1\n', 130)) == set()


def test_all_series_end_when_the_target_fails_but_only_once() -> None:
    target = TextTarget()
    target.scrape("a 1\n# TYPE h histogram\nh_count 1\nh_sum 1\n")
    assert target.series.end(110 * SECOND).count == 2
    assert target.series.end(120 * SECOND).count == 0
    target.scrape("a 1\n# TYPE h histogram\nh_count 1\nh_sum 1\n", 130)
    assert target.series.end(140 * SECOND).count == 2


@pytest.mark.parametrize(("track", "expected"), [(False, {"b"}), (True, {"a", "b"})])
def test_series_with_times_of_their_own_end_by_choice(track: bool, expected: set[str]) -> None:
    target = TextTarget(track_timestamps_staleness=track)
    found = metrics_of(target.scrape("a 1 90000\nb 1\n", 100))
    assert found["a"].gauge.data_points[0].time_unix_nano == 90 * SECOND
    assert ended(target.scrape("c 1\n", 110)) == expected
