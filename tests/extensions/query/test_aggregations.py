"""Aggregates equal those that are computed from all values."""

import statistics

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.extensions.query.serving import BEGIN, SECOND, Served, counter, gauge

WHOLE = f"start_time={BEGIN // SECOND}&end_time={BEGIN // SECOND + 100}"


async def test_an_average_is_that_of_all_points_not_of_averages(served: Served) -> None:
    few, many = [10.0], [1.0, 2.0, 3.0, 4.0]
    await served.write(gauge("hw.power", few, hw_id="a"), host_name="n1")
    await served.write(gauge("hw.power", many, hw_id="b"), host_name="n1")
    await served.write(gauge("hw.power", [7.0], hw_id="c"), host_name="n2")
    first, second = await served.data(f"/telemetry/aggregations?group_by=host_id&{WHOLE}")
    values = [*few, *many]
    assert first["group"] == {"host_id": "n1"}
    assert second["group"] == {"host_id": "n2"}
    assert (first["avg"], first["min"], first["max"]) == (statistics.fmean(values), 1.0, 10.0)
    assert (first["sum"], first["count"], first["rate"]) == (20.0, 5, None)
    assert first["p50"] == statistics.median(values)
    assert first["p90"] == pytest.approx(statistics.quantiles(values, n=10, method="inclusive")[8])


async def test_windows_divide_the_time(served: Served) -> None:
    await served.write(gauge("hw.power", [float(place) for place in range(10)]))
    begin = BEGIN // SECOND
    times = f"start_time={begin}&end_time={begin + 10}"
    data = await served.data(f"/telemetry/aggregations?step=4s&functions=sum,count&{times}")
    assert [(one["sum"], one["count"]) for one in data] == [(6.0, 4), (22.0, 4), (17.0, 2)]
    assert data[-1]["end"] == "2023-11-14T22:13:30.000000000Z"


async def test_a_counter_has_its_increase_also_over_a_restart_and_from_before_the_window(served: Served) -> None:
    await served.write(counter("requests", [5, 9, 12, 3, 4]))
    begin = BEGIN // SECOND
    (whole,) = await served.data(f"/telemetry/aggregations?start_time={begin}&end_time={begin + 5}")
    assert (whole["sum"], whole["count"]) == (4 + 3 + 3 + 1, 5)  # the first value is older than the counter's window
    (later,) = await served.data(f"/telemetry/aggregations?start_time={begin + 2}&end_time={begin + 4}")
    assert (later["sum"], later["rate"]) == (3 + 3, 3.0)


async def test_a_counter_that_started_in_the_window_counts_from_zero(served: Served) -> None:
    await served.write(counter("requests", [5, 9], started=0))
    (found,) = await served.data(f"/telemetry/aggregations?{WHOLE}")
    assert found["sum"] == 9


async def test_deltas_add_up(served: Served) -> None:
    await served.write(counter("requests", [5, 9, 2], temporality=1))
    (found,) = await served.data(f"/telemetry/aggregations?{WHOLE}")
    assert (found["sum"], found["rate"], found["avg"]) == (16, 0.16, None)


@pytest.mark.parametrize("temporality", [1, 2])
async def test_histograms_are_merged_before_their_quantiles(served: Served, temporality: int) -> None:
    await served.write(histogram("a", temporality), host_name="n1")
    await served.write(histogram("a", temporality, extra=100), host_name="n2")
    (found,) = await served.data(f"/telemetry/aggregations?{WHOLE}")
    points = 3 if temporality == 1 else 1  # the last cumulative point has everything
    assert found["count"] == points * (10 + 110)
    assert found["sum"] == points * 120.0
    assert found["avg"] == 1.0
    assert 2.0 < found["p99"] <= 4.0
    assert 0.0 < found["p50"] <= 4.0
    assert found["rate"] == pytest.approx(found["count"] / 100)


def histogram(name: str, temporality: int, extra: int = 0) -> Metric:
    """Three points with bounds 1, 2, 4. Cumulative ones stay the same after the first."""
    metric = Metric(name=name, unit="s")
    metric.histogram.aggregation_temporality = temporality  # type: ignore[assignment]
    for place in range(3):
        metric.histogram.data_points.add(
            start_time_unix_nano=BEGIN,
            time_unix_nano=BEGIN + place * SECOND,
            count=10 + extra,
            sum=10.0 + extra,
            explicit_bounds=[1.0, 2.0, 4.0],
            bucket_counts=[5, 3, 2 + extra, 0],
        )
    return metric


async def test_exponential_histograms_of_different_scales_are_merged(served: Served) -> None:
    for host, scale, offset in (("n1", 3, 0), ("n2", 1, 0)):
        metric = Metric(name="step", unit="s")
        metric.exponential_histogram.aggregation_temporality = 1  # type: ignore[assignment]
        point = metric.exponential_histogram.data_points.add(
            time_unix_nano=BEGIN, count=4, sum=6.0, scale=scale, zero_count=1
        )
        point.positive.offset = offset
        point.positive.bucket_counts.extend([1, 1, 1])
        await served.write(metric, host_name=host)
    (found,) = await served.data(f"/telemetry/aggregations?{WHOLE}")
    assert (found["count"], found["sum"], found["type"]) == (8, 12.0, "exponential_histogram")
    assert 1.0 <= found["p50"] <= 2.0**0.5
    assert found["p99"] <= 2.0**1.5


async def test_values_that_are_not_numbers_do_not_count(served: Served) -> None:
    metric = gauge("m", [1.0, float("nan"), 3.0])
    metric.gauge.data_points.add(time_unix_nano=BEGIN + 5 * SECOND, flags=1)
    await served.write(metric)
    (found,) = await served.data(f"/telemetry/aggregations?{WHOLE}")
    assert (found["count"], found["avg"], found["max"], found["p50"]) == (2, 2.0, 3.0, 2.0)


async def test_too_many_results_are_refused_with_advice(served: Served) -> None:
    await served.write(gauge("m", [1.0]))
    answer = await served.get("/telemetry/aggregations?step=1s&start_time=2000-01-01&end_time=2024-01-01")
    assert answer.status == 422
    assert "longer step" in answer.json["detail"]


async def test_integers_beyond_the_precision_of_doubles_keep_their_differences(served: Served) -> None:
    large = 2**60
    await served.write(
        counter("requests", [large + 1, large + 6, large + 13]), counter("level", [large + 1, large + 3])
    )
    (level, requests) = await served.data(f"/telemetry/aggregations?functions=sum&{WHOLE}")
    assert (level["sum"], requests["sum"]) == (2, 12)
    metric = gauge("exact", [])
    for value in (large + 1, large + 3):
        metric.gauge.data_points.add(time_unix_nano=BEGIN + value % 1000, as_int=value)
    await served.write(metric)
    (exact,) = await served.data(f"/telemetry/aggregations?metric=exact&functions=min,max&{WHOLE}")
    assert (exact["min"], exact["max"]) == (large + 1, large + 3)


async def test_a_counter_goes_on_after_a_point_without_a_value(served: Served) -> None:
    metric = counter("requests", [5, 0, 9, 12])
    gone = metric.sum.data_points[1]
    gone.ClearField("as_int")
    gone.flags = 1
    await served.write(metric)
    begin = BEGIN // SECOND
    (found,) = await served.data(f"/telemetry/aggregations?start_time={begin + 2}&end_time={begin + 4}")
    assert (found["sum"], found["count"]) == (7, 2)
