"""A Prometheus page of 10,000 series with 8 labels, compared with prometheus_client's."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, NumberDataPoint
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from benchmarks import BenchmarkRow, seconds
from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.prometheus import Format, Page

SERIES = 10_000
ROUNDS = 7
LABELS = [{f"label_{n}": f"value-{series}-{n}" for n in range(8)} for series in range(SERIES)]
VALUES = [series * 1.37 for series in range(SERIES)]


def run() -> list[BenchmarkRow]:
    """The best of several alternating rounds."""
    page, registry, scrape = Page(), client_registry(), otlp()
    page.update(scrape, 0)
    rounds = [
        (
            seconds(lambda: generate_latest(registry)),
            seconds(lambda: page.render(Format(), 0)),
            seconds(lambda: page.render(Format(protobuf=True), 0)),
            seconds(lambda: page.update(scrape, 0)),
        )
        for _ in range(ROUNDS)
    ]
    theirs, ours, protobuf, update = map(min, zip(*rounds, strict=True))
    times = f"{theirs / ours:.1f}x ({ours * 1e3:.1f} ms, {theirs * 1e3:.0f} ms)"
    return [
        BenchmarkRow("Prometheus page, 10,000 series, to generate_latest", times, ">= 15x", theirs >= 15 * ours),
        BenchmarkRow("Prometheus page, the same in the protobuf format", f"{protobuf * 1e3:.1f} ms"),
        BenchmarkRow("Prometheus page, update of a known series", f"{update / SERIES * 1e6:.1f} us"),
    ]


def otlp() -> MetricsData:
    """One scrape of the series."""
    message = MetricsData()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="gauge", description="A gauge.")
    metric.gauge.data_points.extend(
        NumberDataPoint(as_double=value, time_unix_nano=1, attributes=key_values(labels))
        for labels, value in zip(LABELS, VALUES, strict=True)
    )
    return message


def client_registry() -> CollectorRegistry:
    """The same series in prometheus_client."""
    registry = CollectorRegistry()
    gauge = Gauge("gauge", "A gauge.", list(LABELS[0]), registry=registry)
    for labels, value in zip(LABELS, VALUES, strict=True):
        gauge.labels(**labels).set(value)
    return registry
