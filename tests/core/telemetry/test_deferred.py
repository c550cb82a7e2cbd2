"""Metrics that are recorded before the SDK is imported are not lost."""

from collections.abc import Mapping
from threading import Barrier, Thread

import pytest
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.telemetry.metering import DeferredMeterProvider
from tests.otlp import metrics_in


class Made:
    """A provider, and the values that its reader sees."""

    def __init__(self) -> None:
        self.times = 0
        self._reader = InMemoryMetricReader()

    def __call__(self) -> MeterProvider:
        self.times += 1
        return SdkMeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)

    def values(self) -> dict[str, Mapping[object, float]]:
        """By the name of the metric and by the values of the attributes."""
        data = self._reader.get_metrics_data()
        assert data
        metrics = metrics_in(data)
        return {
            metric.name: {
                tuple((point.attributes or {}).values()): float(getattr(point, "value", 0) or getattr(point, "sum", 0))
                for point in metric.data.data_points
            }
            for metric in metrics
        }


def test_counters_keep_their_sums_of_before_and_go_on() -> None:
    made = Made()
    deferred = DeferredMeterProvider(made)
    meter = deferred.get_meter("one")
    drops, tasks = meter.create_counter("drops", "{item}", "Lost."), meter.create_up_down_counter("tasks")
    drops.add(2, {"reason": "full"})
    drops.add(3, {"reason": "full"})
    drops.add(1)
    tasks.add(5)
    tasks.add(-2)
    assert not made.times
    deferred.provide()
    drops.add(4, {"reason": "full"})
    tasks.add(-1)
    assert made.values() == {"drops": {("full",): 9, (): 1}, "tasks": {(): 2}}


def test_callbacks_are_called_when_metrics_are_read() -> None:
    made, calls = Made(), list[CallbackOptions]()
    deferred = DeferredMeterProvider(made)

    def observe(options: CallbackOptions) -> list[Observation]:
        calls.append(options)
        return [Observation(len(calls))]

    meter = deferred.get_meter("one")
    meter.create_observable_counter("a", [observe])
    meter.create_observable_gauge("b", [observe])
    deferred.provide()
    meter.create_observable_up_down_counter("c", [observe])
    assert not calls
    assert made.values() == {"a": {(): 1}, "b": {(): 2}, "c": {(): 3}}


def test_a_restarted_component_goes_on_counting_where_it_was() -> None:
    made = Made()
    deferred = DeferredMeterProvider(made)
    for _ in range(2):
        deferred.get_meter("one").create_counter("drops", "{item}", "Lost.").add(2)
    deferred.provide()
    deferred.get_meter("one").create_counter("drops", "{item}", "Lost.").add(3)
    assert made.values() == {"drops": {(): 7}}


@pytest.mark.parametrize("kind", ["histogram", "gauge"])
def test_an_instrument_that_needs_the_sdk_makes_it_at_once(kind: str) -> None:
    made = Made()
    meter = DeferredMeterProvider(made).get_meter("one")
    earlier = meter.create_counter("earlier")
    earlier.add(1)
    if kind == "histogram":
        meter.create_histogram("seconds", explicit_bucket_boundaries_advisory=[1, 2]).record(1.5)
    else:
        meter.create_gauge("seconds").set(1.5)
    assert made.times == 1
    assert made.values() == {"earlier": {(): 1}, "seconds": {(): 1.5}}


def test_threads_that_count_meanwhile_lose_nothing() -> None:
    made = Made()
    deferred = DeferredMeterProvider(made)
    counter, start = deferred.get_meter("one").create_counter("drops"), Barrier(5)

    def count() -> None:
        start.wait()
        for _ in range(2000):
            counter.add(1, {"reason": "full"})

    def provide() -> None:
        start.wait()
        deferred.provide()

    threads = [Thread(target=work) for work in (count, count, count, provide, provide)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.times == 1
    assert made.values() == {"drops": {("full",): 6000}}
