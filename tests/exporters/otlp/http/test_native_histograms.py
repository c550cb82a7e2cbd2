"""A server without native histograms, such as Prometheus 3.5 with its defaults, gets all points with fixed bounds."""

import logging
from dataclasses import dataclass

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, MetricsData
from starlette.requests import Request
from starlette.responses import Response

from otel_zernel.batch import Batch
from otel_zernel.errors import Permanent
from otel_zernel_exporters.otlp import OtlpHttpExporter
from otel_zernel_libraries.prometheus.histograms import default_bounds
from otel_zernel_processors.phases.emit.durations import StepDurations
from tests.exporters.otlp.exporting import answering, context, exporting
from tests.exporters.otlp.peers import HttpSink
from tests.otlp import NOW, SECOND, data, exponential, gauge, metrics_in, number

DISABLED = "native histograms are disabled"
TRAIN = {"service.name": "train", "service.instance.id": "node/812", "host.name": "node"}


@dataclass
class OldPrometheus(HttpSink):
    """A Prometheus that stores nothing of a request with exponential histograms."""

    status: int = 500

    async def _keep(self, request: Request) -> Response:
        answer = await super()._keep(request)
        sent = self.messages()[-1]
        return Response(DISABLED, self.status) if any(map(is_exponential, metrics_in(sent))) else answer

    def messages(self) -> list[MetricsData]:
        return [MetricsData.FromString(request.body) for request in self.requests]

    def stored(self, name: str) -> list[HistogramDataPoint]:
        """The histogram points of a metric in the requests that were not refused."""
        accepted = (sent for sent in self.messages() if not any(map(is_exponential, metrics_in(sent))))
        return [
            point
            for sent in accepted
            for metric in metrics_in(sent)
            if metric.name == name
            for point in metric.histogram.data_points
        ]


def is_exponential(metric: Metric) -> bool:
    return metric.HasField("exponential_histogram")


def steps(at: int) -> Batch:
    """Ten steps of `phases`, of 0.1 s to 1 s."""
    durations = StepDurations()
    for tenth in range(1, 11):
        durations.add("train", tenth * SECOND // 10)
    return Batch(data(durations.metric((), {}, at - SECOND, at), resource=TRAIN))


async def deliver(exporter: OtlpHttpExporter, batch: Batch) -> None:
    for prepared in exporter.prepare(batch, dropped=False):
        await exporter.export(prepared)


@pytest.mark.parametrize("status", [500, 400])
async def test_steps_have_fixed_bounds_after_the_first_refusal(status: int, caplog: pytest.LogCaptureFixture) -> None:
    sink = OldPrometheus(status=status)
    with caplog.at_level(logging.WARNING):
        async with exporting(sink, compression="none") as exporter:
            queued = list(exporter.prepare(steps(NOW), dropped=False))
            for second in (1, 2):
                await deliver(exporter, steps(NOW + second * SECOND))
            for batch in queued:
                await exporter.export(batch)
    assert len(sink.requests) == 4
    before, after, waited = sink.stored("zernel.step.duration")
    assert [point.count for point in (before, after, waited)] == [20, 10, 10]
    assert after.start_time_unix_nano == before.time_unix_nano  # a restart for Prometheus, which then adds 10
    grid = list(default_bounds("s").values)
    assert all(list(point.explicit_bounds) == grid for point in (before, after, waited))
    assert all(sum(point.bucket_counts) == point.count for point in (before, after, waited))
    assert caplog.text.count("start Prometheus with --enable-feature=native-histograms") == 1


async def test_the_other_points_of_the_request_are_kept_and_values_lie_below_their_bound() -> None:
    sink = OldPrometheus()
    message = data(
        exponential("e", 1, (0, [1, 2]), (2, [3]), zero_count=4, sum_=4.0), gauge("g", number(1.0)), resource=TRAIN
    )
    async with exporting(sink, compression="none") as exporter:
        await exporter.export(Batch(message))
        await exporter.export(Batch(data(gauge("g", number(2.0)))))
    [point] = sink.stored("e")
    up_to = {bound: sum(point.bucket_counts[: place + 1]) for place, bound in enumerate(point.explicit_bounds)}
    assert (point.count, point.sum, up_to[0.0], up_to[1.0], up_to[2.0]) == (10, 4.0, 7, 7, 10)
    assert [metric.name for metric in metrics_in(sink.messages()[1])] == ["e", "g"]
    assert sink.messages()[2] == data(gauge("g", number(2.0)))


async def test_a_point_that_ends_its_series_or_contradicts_itself_has_no_buckets() -> None:
    ended, scale, count = (exponential(name, 1, (0, [1, 2])) for name in ("ended", "scale", "count"))
    ended.exponential_histogram.data_points[0].flags = 1
    scale.exponential_histogram.data_points[0].scale = -2_000_000_000
    count.exponential_histogram.data_points[0].count = 7
    sink = OldPrometheus()
    async with exporting(sink, compression="none") as exporter:
        await exporter.export(Batch(data(ended, scale, count)))
    assert [sink.stored(name)[0].flags for name in ("ended", "scale", "count")] == [1, 0, 0]
    assert [sink.stored(name)[0].count for name in ("scale", "count")] == [3, 7]
    assert not any(sink.stored(name)[0].explicit_bounds for name in ("ended", "scale", "count"))


async def test_a_server_that_refuses_all_histograms_gets_no_batch_twice_and_the_loss_has_its_words() -> None:
    own = context("http")
    sink = answering(*(Response(DISABLED, 500) for _ in range(3)))
    async with exporting(sink, own) as exporter:
        with pytest.raises(Permanent, match=DISABLED):
            await exporter.export(Batch(data(exponential("e", 1, (0, [1])))))
        with pytest.raises(Permanent, match=DISABLED):
            await exporter.export(Batch(data(gauge("g", number(1.0)))))
    assert len(sink.requests) == 3
