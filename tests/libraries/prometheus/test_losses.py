"""Points that are not shown are counted by reason."""

from collections import Counter

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.libraries.prometheus.shown import Shown
from tests.otlp import (
    NOW,
    ended,
    exponential,
    gauge,
    histogram,
    number,
    summary,
    total,
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gauge("a", number(1)), summary("a", {}, 1, 1.0, unit="")),
        (summary("a", {}, 1, 1.0, unit=""), gauge("a.count", number(1))),
        (gauge("a.count", number(1)), summary("a", {}, 1, 1.0, unit="")),
        (histogram("a", [1.0], [1, 1], unit=""), gauge("a.bucket", number(1))),
        (gauge("b", number(1)), gauge("target.info", number(1))),
    ],
)
def test_a_name_of_another_family_is_refused_and_counted(shown: Shown, first: Metric, second: Metric) -> None:
    shown.update(first)
    before = shown.text()
    shown.update(second)
    assert shown.text() == before
    assert shown.dropped.counts == {"type_conflict": 1}
    assert len(shown.warnings) == 1


def test_a_second_unit_of_one_name_is_refused() -> None:
    shown = Shown(translation_strategy="UnderscoreEscapingWithoutSuffixes")
    shown.update(gauge("a", number(1, {"n": 1}), unit="s"), gauge("a", number(1, {"n": 2}), unit="ms"))
    assert shown.lines() == ['a{n="1"} 1']
    assert shown.dropped.counts == {"type_conflict": 1}


def test_a_name_is_free_again_after_its_family_expired(shown: Shown) -> None:
    shown.update(summary("a", {}, 1, 1.0, unit=""), now=0)
    shown.update(gauge("a.count", number(1)), now=301)
    assert shown.lines(now=301) == ["a_count 1"]
    shown.update(gauge("a.count", ended()), now=301)
    shown.update(summary("a", {}, 1, 1.0, unit=""), now=301)
    assert shown.lines(now=301) == ["a_count 1", "a_sum 1.0"]


def test_the_newer_of_two_series_with_the_same_labels_is_kept(shown: Shown) -> None:
    for gpu, value, time in (("0", 1, NOW), ("1", 2, NOW + 1), ("0", 3, NOW), ("0", 4, NOW + 2)):
        shown.update(gauge("a", number(value, time=time)), resource={"hw.id": gpu})
    assert shown.lines() == ["a 4"]
    assert shown.dropped.counts == {"collision": 3}
    [warning] = shown.warnings
    assert "resource_constant_labels" in warning


def test_attributes_with_equal_label_texts_collide(shown: Shown) -> None:
    shown.update(gauge("a", number(1, {"n": 1}), number(2, {"n": "1"})))
    assert shown.lines() == ['a{n="1"} 2']
    assert shown.dropped.counts == {"collision": 1}


@pytest.mark.parametrize(
    "metric",
    [
        total("a", number(-1)),
        total("a", number(float("nan"))),
        summary("a", {1.5: 1.0}, 1, 1.0),
        summary("a", {0.5: -1.0}, 1, 1.0),
        summary("a", {float("nan"): 1.0}, 1, 1.0),
        histogram("a", [2.0, 1.0], [1, 1, 1]),
        histogram("a", [1.0, float("inf")], [1, 1, 1]),
        histogram("a", [1.0], [1, 1, 1]),
        exponential("a", 1 << 30, (0, [1])),
    ],
)
def test_malformed_points_are_counted_and_create_no_series(shown: Shown, metric: Metric) -> None:
    shown.update(metric)
    assert shown.text() == ""
    assert shown.dropped.counts == {"malformed": 1}


def test_a_malformed_point_does_not_change_its_series(shown: Shown) -> None:
    shown.update(total("a", number(1)), total("a", number(-1, time=NOW + 1)))
    assert shown.lines() == ["a_total 1"]


def test_sums_and_histograms_need_a_temporality(shown: Shown) -> None:
    shown.update(total("a", number(1), temporality=0), histogram("b", [], [1], temporality=0))  # type: ignore[arg-type]  # unset
    assert shown.dropped.counts == {"no_temporality": 2}


def test_a_name_without_a_legal_character_is_counted(shown: Shown) -> None:
    shown.update(gauge("日本", number(1)), gauge("", number(1)))
    assert shown.dropped.counts == {"bad_name": 2}


def test_a_metric_without_data_is_ignored(shown: Shown) -> None:
    shown.update(Metric(name="a"), gauge("b"))
    assert shown.text() == ""
    assert shown.dropped.counts == Counter()


def test_points_of_surplus_series_are_dropped_and_known_series_go_on() -> None:
    shown = Shown(max_series=2)
    for value in (1, 2):
        shown.update(gauge("a", *(number(value, {"n": n}) for n in range(5))))
    assert shown.lines() == ['a{n="0"} 2', 'a{n="1"} 2']
    assert shown.dropped.counts == {"too_many_series": 6}
    assert len(shown.warnings) == 2  # one for each batch
    shown.update(gauge("a", ended({"n": 0})))
    shown.update(gauge("a", number(3, {"n": 4})))
    assert shown.lines() == ['a{n="1"} 2', 'a{n="4"} 3']


def test_surplus_series_leave_no_state() -> None:
    """Fault 26: a million series took 895 MB. Refused names and resources must not take memory either."""
    shown = Shown(max_series=1)
    shown.update(gauge("a", number(1)))
    for n in range(100):
        shown.update(gauge(f"b{n}", number(1)), gauge("a", number(1, {"n": n})), resource={"n": n})
    assert (len(shown.page._origins), list(shown.page._families.by_name)) == (1, ["a"])
    assert shown.dropped.counts == {"too_many_series": 200}
