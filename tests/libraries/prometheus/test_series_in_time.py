"""Late points, deltas, staleness points and expiry."""

import pytest

from tests.libraries.prometheus.shown import Shown
from tests.otlp import (
    DELTA,
    NOW,
    SECOND,
    data,
    ended,
    exponential,
    gauge,
    histogram,
    node,
    number,
    total,
)


def test_all_expired_series_are_removed_together(shown: Shown) -> None:
    shown.update(*(gauge(f"old.{n}", number(1)) for n in range(3)), total("old.total", number(1)), now=0)
    shown.update(gauge("young", number(1)), now=200)
    assert len(shown.lines(now=300)) == 5
    assert shown.lines(now=301) == ["young 1"]
    assert shown.lines(now=501) == []


def test_a_new_point_postpones_expiry(shown: Shown) -> None:
    for now in (0, 200, 400):
        shown.update(gauge("a", number(1)), now=now)
    assert shown.lines(now=600) == ["a 1"]


def test_expired_series_leave_no_state(shown: Shown) -> None:
    shown.page.update(node(), 0)
    shown.page.expire(301)
    assert not shown.page._origins
    assert not shown.page._families.by_name
    assert not shown.page._families.by_sample_name


def test_a_staleness_point_removes_its_series(shown: Shown) -> None:
    shown.update(gauge("a", number(1, {"n": 1}), number(2, {"n": 2})))
    shown.update(gauge("a", ended({"n": 1}), ended({"n": 3})))
    assert shown.lines() == ['a{n="2"} 2']
    shown.update(gauge("a", number(3, {"n": 1})))
    assert shown.lines() == ['a{n="2"} 2', 'a{n="1"} 3']


def test_older_points_are_ignored_and_counted(shown: Shown) -> None:
    for value, time in ((1, NOW), (2, NOW + SECOND), (3, NOW), (4, 0), (5, NOW + SECOND)):
        shown.update(gauge("a", number(value, time=time)))
    assert shown.lines() == ["a 5"]
    assert shown.dropped.counts == {"out_of_order": 1}


@pytest.mark.parametrize(("monotonic", "name"), [(True, "a_total"), (False, "a")])
def test_delta_sums_add_up(shown: Shown, monotonic: bool, name: str) -> None:
    for value, time in ((1, 1), (2, 2), (4, 4)):
        shown.update(total("a", number(value, time=time), monotonic=monotonic, temporality=DELTA))
    assert shown.lines() == [f"{name} 7"]


def test_a_repeated_delta_counts_once(shown: Shown) -> None:
    for _ in range(2):
        shown.update(total("a", number(3), temporality=DELTA))
    assert shown.lines() == ["a_total 3"]
    assert shown.dropped.counts == {"out_of_order": 1}


def test_delta_histograms_add_up(shown: Shown) -> None:
    for time in (1, 2):
        shown.update(histogram("a", [1.0], [1, 2], 5.0, time=time, temporality=DELTA, unit=""))
    assert shown.lines() == ['a_bucket{le="1.0"} 2', 'a_bucket{le="+Inf"} 6', "a_count 6", "a_sum 10.0"]


def test_delta_exponential_histograms_add_up_at_the_coarser_scale() -> None:
    shown = Shown(histogram_bounds={"*": (1.0, 1.5, 2.0)})
    shown.update(exponential("a", 1, (0, [1, 1]), sum_=1.0, time=1, temporality=DELTA))
    shown.update(exponential("a", 0, (0, [1]), sum_=2.0, time=2, temporality=DELTA))
    assert shown.lines() == [
        'a_seconds_bucket{le="1.0"} 0',
        'a_seconds_bucket{le="1.5"} 1',  # the coarser buckets alone have none: a total never decreases
        'a_seconds_bucket{le="2.0"} 3',
        'a_seconds_bucket{le="+Inf"} 3',
        "a_seconds_count 3",
        "a_seconds_sum 3.0",
    ]


HOUR = 3600 * SECOND


def test_the_page_follows_this_machines_clock_when_it_is_set_back(shown: Shown) -> None:
    """Fault 14: an hour back froze the page until `metric_expiration`."""
    counter = total("b", number(1, time=NOW), monotonic=True, temporality=DELTA)
    shown.page.update(data(gauge("a", number(1, time=NOW)), counter), 0, NOW)
    back = NOW - HOUR + 10 * SECOND
    counter = total("b", number(1, time=back), monotonic=True, temporality=DELTA)
    shown.page.update(data(gauge("a", number(2, time=back)), counter), 10, back)
    assert shown.lines(now=10) == ["a 2", "b_total 2"]
    assert shown.dropped.counts == {}


def test_a_slewed_clock_changes_nothing(shown: Shown) -> None:
    for second in range(5):
        clock = NOW + round(second * 0.9995 * SECOND)
        shown.page.update(data(gauge("a", number(second, time=NOW - second))), second, clock)
    assert shown.lines() == ["a 0"]


def test_the_page_follows_another_machines_clock_after_a_minute_of_late_points(shown: Shown) -> None:
    for second in range(0, 100, 10):
        step = 0 if second < 20 else HOUR
        time = NOW + second * SECOND - step
        shown.page.update(data(gauge("a", number(second, time=time))), second, NOW + second * SECOND)
        assert shown.lines(now=second) == [f"a {second if second < 20 or second >= 80 else 10}"]
    assert shown.dropped.counts == {"out_of_order": 6}


def test_late_points_between_newer_ones_are_never_shown(shown: Shown) -> None:
    for second in range(0, 300, 10):
        now = NOW + second * SECOND
        shown.page.update(data(gauge("a", number(second, time=now))), second, now)
        shown.page.update(data(gauge("a", number(-1, time=now - SECOND))), second, now)
        assert shown.lines(now=second) == [f"a {second}"]
