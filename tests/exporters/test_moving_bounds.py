"""Each exporter that sends to other programs has every event once, whatever the bounds and the restarts of a sender."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.batch import Batch
from otel_zernel.component import Exporter
from otel_zernel.testing import make_context
from otel_zernel_exporters.kafka import KafkaExporter
from otel_zernel_exporters.otlp import OtlpGrpcExporter, OtlpHttpExporter
from otel_zernel_exporters.otlp.classic import ClassicHistograms
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_exporters.prometheusremotewrite import PrometheusRemoteWriteExporter
from otel_zernel_exporters.prometheusremotewrite.protocol.series import WrittenHistogram
from otel_zernel_exporters.prometheusremotewrite.protocol.translation import with_classic_histograms
from otel_zernel_libraries.prometheus import Format
from tests.libraries.histograms.temporality.running import ns
from tests.libraries.histograms.temporality.test_increase import exponential
from tests.libraries.histograms.temporality.test_moving_bounds import Report, reports
from tests.libraries.histograms.temporality.test_settled_bounds import StrictBackend, cumulative_metrics, deltas, marked
from tests.otlp import data, metrics_in

WRITE = {"endpoint": "http://localhost:9090/api/v1/write"}
V1, V2 = "prometheus.WriteRequest", "io.prometheus.write.v2.Request"
PAGE_LINE = re.compile(r'latency_seconds_(bucket|count|sum)\{(?:.*le="([^"]+)")?.*\} (\S+)')


def created(cls: type[Exporter], **options: Any) -> Any:
    return cls(cls.Config.model_validate(options), make_context("exporters", "one"))


def prepared(exporter: Exporter, metric: Metric) -> Iterator[Batch]:
    """What the exporter queues of a batch with this metric."""
    batch = Batch.from_bytes(metrics=data(metric).SerializeToString())
    if exporter.prepares(batch):
        yield from exporter.prepare(batch, dropped=False)
    else:
        yield batch


def sent(given_reports: Sequence[Report], *, is_cumulative: bool, is_marked: bool) -> Iterable[Metric]:
    for metric in (cumulative_metrics if is_cumulative else deltas)(given_reports):
        yield marked(metric) if is_marked else metric


@given(reports, st.booleans(), st.booleans(), st.sampled_from(["exponential", "fixed"]))
def test_otlp_and_kafka_send_every_event_once(
    given_reports: list[Report], is_cumulative: bool, is_marked: bool, form: str
) -> None:
    otlp = {"endpoint": "http://localhost:4317", "moving_bounds": form}
    exporters = [created(OtlpGrpcExporter, **otlp), created(OtlpHttpExporter, **otlp)]
    exporters.append(created(KafkaExporter, moving_bounds=form))
    backends = [StrictBackend() for _ in exporters]
    for metric in sent(given_reports, is_cumulative=is_cumulative, is_marked=is_marked):
        for exporter, backend in zip(exporters, backends, strict=True):
            for batch in prepared(exporter, metric):
                [settled] = batch.metrics.resource_metrics[0].scope_metrics[0].metrics
                backend.take(settled)
    for backend in backends:
        assert backend.count == sum(len(report.events) for report in given_reports)
        assert backend.total == pytest.approx(sum(sum(report.events) for report in given_reports))


@pytest.mark.parametrize("cls", [OtlpGrpcExporter, OtlpHttpExporter, KafkaExporter])
def test_an_exporter_that_leaves_moving_bounds_as_they_are_says_so_at_validate(cls: type[Exporter]) -> None:
    url = {} if cls is KafkaExporter else {"endpoint": "http://localhost:4317"}
    for form, refused in (("exponential", {}), ("fixed", {}), ("as_is", {"moving_bounds": ("*",)})):
        assert cls.forms(cls.Config.model_validate({**url, "moving_bounds": form})).refuses == refused


@given(reports, st.booleans(), st.booleans())
def test_the_page_has_the_events_since_the_last_restart_in_buckets_that_never_decrease(
    given_reports: list[Report], is_cumulative: bool, is_marked: bool
) -> None:
    exporter = created(PrometheusExporter)
    count, before = 0, dict[str, float]()
    for report, metric in zip(
        given_reports, sent(given_reports, is_cumulative=is_cumulative, is_marked=is_marked), strict=True
    ):
        if is_cumulative and report.resets:
            count, before = 0, {}
        count += len(report.events)
        for batch in prepared(exporter, metric):
            exporter._update(batch)  # as `export`, without a thread
        shown = page_of(exporter)
        assert shown["+Inf"] == count
        assert all(shown[bound] >= before.get(bound, 0) for bound in shown)
        if is_marked and before:
            assert shown.keys() == before.keys()
        before = shown


def page_of(exporter: PrometheusExporter) -> dict[str, float]:
    """The buckets of the newest form, by bound."""
    text = exporter._render(Format()).decode()  # as a scrape
    return {line[2]: float(line[3]) for line in map(PAGE_LINE.match, text.splitlines()) if line and line[2]}


@given(
    reports,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["io.prometheus.write.v2.Request", "prometheus.WriteRequest"]),
)
def test_remote_write_sends_every_event_once(
    given_reports: list[Report], is_cumulative: bool, is_marked: bool, message: str
) -> None:
    exporter = created(PrometheusRemoteWriteExporter, **WRITE, protobuf_message=message)
    counts: dict[Any, list[tuple[int, int, float]]] = {}
    for metric in sent(given_reports, is_cumulative=is_cumulative, is_marked=is_marked):
        for batch in prepared(exporter, metric):
            for series, samples in exporter._translation.entries(batch.metrics, ns(1)):
                for time_ms, value, start_ms, *_ in samples:
                    is_native = isinstance(value, WrittenHistogram)
                    assert not (is_native and message == V1)
                    if is_native or "latency_seconds_count" in series.labels:
                        count = value.count if is_native else value
                        counts.setdefault(series, []).append((start_ms, time_ms, count))
    assert sum(map(increase, counts.values())) == sum(len(report.events) for report in given_reports)


@dataclass
class ExponentialReport:
    """The new values of a report, and the form of its histogram."""

    values: list[float]
    scale: int
    threshold: float
    resets: bool
    jitter: int
    """Seconds by which the start is later: some senders compute it anew for each point."""


exponential_reports = st.lists(
    st.builds(
        *(ExponentialReport, st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), st.integers(-2, 5)),
        *(st.sampled_from([0.0, 0.05]), st.booleans(), st.integers(0, 4)),
    ),
    min_size=2,
    max_size=5,
)


def exponential_metrics(given_reports: Iterable[ExponentialReport]) -> Iterator[Metric]:
    """The points of a sender whose scale and zero bucket change. Each has all values since the last restart."""
    since, start = list[float](), 1
    for number, report in enumerate(given_reports, 1):
        if report.resets and number > 1:
            since, start = [], 10 * number - 5
        since = [*since, *report.values]
        point = exponential(since, report.scale, report.threshold)
        point.start_time_unix_nano, point.time_unix_nano = ns(start + report.jitter), ns(10 * number)
        metric = Metric(name="latency", unit="s")
        metric.exponential_histogram.aggregation_temporality = 2  # type: ignore[assignment]  # an enum's number
        metric.exponential_histogram.data_points.append(point)
        yield metric


def shown_classic(metrics: Iterable[Metric]) -> Iterator[dict[str, dict[str, float]]]:
    """The counts by bound after each point, by the way into the server."""
    page, writer = created(PrometheusExporter), created(PrometheusRemoteWriteExporter, **WRITE)
    classic = ClassicHistograms(100)
    for metric in metrics:
        batch = Batch.from_bytes(metrics=data(metric).SerializeToString())
        page._update(batch)  # as `export`, without a thread
        entries = with_classic_histograms(writer._translation.entries(batch.metrics, ns(1)), custom_only=False)
        written = {
            dict(pairwise(series.labels))["le"]: samples[0][1]
            for series, samples in entries
            if "le" in series.labels and isinstance(samples[0][1], float)
        }
        [sent] = metrics_in(asyncio.run(classic.converted(batch)).metrics)
        [point] = sent.histogram.data_points
        up_to = zip([*map(str, point.explicit_bounds), "inf"], accumulate(point.bucket_counts), strict=True)
        yield {"page": page_of(page), "remote write": written, "otlp_http": dict(up_to)}


@given(exponential_reports)
def test_no_classic_bucket_decreases_until_the_sender_begins_again(given_reports: list[ExponentialReport]) -> None:
    before: dict[str, dict[str, float]] = {}
    count = 0
    for report, shown in zip(given_reports, shown_classic(exponential_metrics(given_reports)), strict=True):
        count = len(report.values) + (0 if report.resets else count)
        for way, buckets in shown.items():
            assert max(buckets.values()) == count, way
            assert sorted(buckets.values()) == [*buckets.values()], way
            if before and not report.resets:
                assert buckets.keys() == before[way].keys(), way
                assert all(buckets[bound] >= former for bound, former in before[way].items()), way
        before = shown


@given(exponential_reports)
def test_a_native_histogram_has_a_reset_only_where_the_sender_began_again(
    given_reports: list[ExponentialReport],
) -> None:
    writer = created(PrometheusRemoteWriteExporter, **WRITE)
    found = [
        value.has_reset
        for metric in exponential_metrics(given_reports)
        for _, samples in writer._translation.entries(data(metric), ns(1))
        for _, value, *_ in samples
        if isinstance(value, WrittenHistogram)
    ]
    assert found == [report.resets and number > 0 for number, report in enumerate(given_reports)]


def increase(samples: Iterable[tuple[int, int, float]]) -> float:
    """The increase of a counter, of samples with a start and a time. A start after the sample before begins at zero; a
    decrease without one is a mistake."""
    total, (last, former) = 0.0, (-1, 0.0)
    for start, time, value in samples:
        assert start >= last or value >= former
        total += value if start >= last else value - former
        last, former = time, value
    return total
