"""Summaries, histograms and exemplars."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel.otlp.points import key_values
from tests.libraries.prometheus.shown import OPENMETRICS, Shown
from tests.otlp import (
    NOW,
    exponential,
    histogram,
    number,
    summary,
    total,
)


def test_a_summary_has_its_quantiles_in_ascending_order(shown: Shown) -> None:
    shown.update(summary("zernel.cuda.launch.latency", {1: 0.5, 0.99: 0.25, 0: 0.125}, 3, 0.875, {"process.pid": 7}))
    name, pid = "zernel_cuda_launch_latency_seconds", 'process_pid="7"'
    assert shown.lines() == [
        f'{name}{{{pid},quantile="0"}} 0.125',
        f'{name}{{{pid},quantile="0.99"}} 0.25',
        f'{name}{{{pid},quantile="1"}} 0.5',
        f"{name}_count{{{pid}}} 3",
        f"{name}_sum{{{pid}}} 0.875",
    ]
    assert f"# TYPE {name} summary\n" in shown.text()


def test_a_histogram_without_buckets_has_count_and_sum(shown: Shown) -> None:
    shown.update(histogram("a", [], [4], 2.0, unit=""))
    assert shown.lines() == ['a_bucket{le="+Inf"} 4', "a_count 4", "a_sum 2.0"]


@pytest.mark.parametrize(("bounds", "sum_"), [([-1.0, 1.0], 3.0), ([1.0, 2.0], -3.0), ([1.0, 2.0], None)])
@pytest.mark.parametrize("send_timestamps", [False, True])
def test_a_sum_that_may_decrease_is_omitted_in_openmetrics_with_its_count(
    bounds: list[float], sum_: float | None, send_timestamps: bool
) -> None:
    shown = Shown(send_timestamps=send_timestamps)
    shown.update(histogram("a", bounds, [1, 1, 1], sum_))
    bucket, count = (line.split()[:2] for line in shown.lines()[-2:])
    assert bucket == ['a_seconds_bucket{le="+Inf"}', "3"]
    assert count == ["a_seconds_count", "3"]
    assert shown.lines(OPENMETRICS)[-1].split()[:2] == bucket


def test_openmetrics_has_the_greatest_exemplar_of_each_bucket(shown: Shown) -> None:
    values = [Exemplar(as_double=value, trace_id=bytes([round(value * 10)] * 16)) for value in (0.2, 0.4, 0.3)]
    values.append(Exemplar(as_int=7, time_unix_nano=NOW, filtered_attributes=key_values({"step": 3})))
    shown.update(histogram("a", [0.5, 1.0], [3, 0, 1], exemplars=tuple(values), unit=""))
    assert shown.lines(OPENMETRICS) == [
        f'a_bucket{{le="0.5"}} 3 # {{trace_id="{"04" * 16}"}} 0.4',
        'a_bucket{le="1.0"} 3',
        'a_bucket{le="+Inf"} 4 # {step="3"} 7 1700000000.000',
    ]
    assert not any("#" in line for line in shown.lines())


def test_an_exponential_histogram_keeps_its_exemplars_when_its_scale_decreases(shown: Shown) -> None:
    slow = Exemplar(as_double=3.0, trace_id=b"\1" * 16)
    shown.update(exponential("a", 0, (0, [1, 1]), exemplars=(slow,)))
    shown.update(exponential("a", -1, (0, [2, 1]), time=NOW + 1))
    assert [line for line in shown.lines(OPENMETRICS) if "trace_id" in line] == [
        f'a_seconds_bucket{{le="3.363585661014858"}} 1 # {{trace_id="{"01" * 16}"}} 3.0'
    ]


def test_an_exemplar_with_too_long_labels_keeps_only_its_ids(shown: Shown) -> None:
    exemplar = Exemplar(as_int=1, span_id=b"12345678", filtered_attributes=key_values({"long": "x" * 128}))
    shown.update(total("a", number(1, exemplars=[exemplar])))
    assert shown.lines(OPENMETRICS) == ['a_total 1 # {span_id="3132333435363738"} 1']
