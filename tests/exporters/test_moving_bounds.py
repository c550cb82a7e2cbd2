"""Each exporter that sends to other programs has every event once, whatever the bounds and the restarts of a sender."""

import re
from collections.abc import Iterable, Iterator, Sequence
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
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_exporters.prometheusremotewrite import PrometheusRemoteWriteExporter
from otel_zernel_exporters.prometheusremotewrite.protocol.series import WrittenHistogram
from otel_zernel_libraries.prometheus import Format
from tests.libraries.histograms.temporality.running import ns
from tests.libraries.histograms.temporality.test_moving_bounds import Report, reports
from tests.libraries.histograms.temporality.test_settled_bounds import StrictBackend, cumulative_metrics, deltas, marked
from tests.otlp import data

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
    counts: dict[Any, list[tuple[int, float]]] = {}
    for metric in sent(given_reports, is_cumulative=is_cumulative, is_marked=is_marked):
        for batch in prepared(exporter, metric):
            for series, samples in exporter._translation.entries(batch.metrics, ns(1)):
                for _, value, start_ms, *_ in samples:
                    is_native = isinstance(value, WrittenHistogram)
                    assert not (is_native and message == V1)
                    if is_native or "latency_seconds_count" in series.labels:
                        counts.setdefault(series, []).append((start_ms, value.count if is_native else value))
    assert sum(map(increase, counts.values())) == sum(len(report.events) for report in given_reports)


def increase(samples: Iterable[tuple[int, float]]) -> float:
    """The increase of a counter. A new start begins at zero; a decrease without one is a mistake."""
    total, before = 0.0, (-1, 0.0)
    for start, value in samples:
        assert start != before[0] or value >= before[1]
        total += value - before[1] if start == before[0] else value
        before = start, value
    return total
