"""Requests of remote write for 10,000 series with 10 labels, compared with a plain encoding by protobuf."""

from functools import partial
from typing import Any

import cramjam
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, NumberDataPoint

from benchmarks import BenchmarkRow, cpu_seconds
from otel_zernel.otlp.points import key_values
from otel_zernel_exporters.prometheusremotewrite.protocol import Encoding, Translation, Version1, Version2
from otel_zernel_libraries.prometheus import Options
from tests.exporters.prometheusremotewrite.decoding import messages

SERIES = 10_000
ROUNDS = 7
LABELS = [{f"label_{n}": f"value-{series if n < 2 else n}-{n}" for n in range(10)} for series in range(SERIES)]
VALUES = [series * 1.37 for series in range(SERIES)]
LIMIT = 3_000_000


def run() -> list[BenchmarkRow]:
    """The best of several alternating rounds of CPU time. All series are known, as they are after the first batch."""
    translation, other = (
        Translation(Options(), lambda *_: None, target_info=True, custom_buckets=False) for _ in range(2)
    )
    first, second = Version1(send_metadata=False), Version2()
    plain_type, _ = messages()
    batches = [otlp(1_700_000_000 + index) for index in range(ROUNDS + 1)]
    known, known_to_second = translation.entries(batches[-1], 0), other.entries(batches.pop(), 0)
    encoded(first, known)
    encoded(second, known_to_second)
    rounds = [
        (
            cpu_seconds(partial(translation.entries, batch, 0)),
            cpu_seconds(partial(encoded, first, known)),
            cpu_seconds(partial(encoded, second, known_to_second)),
            cpu_seconds(partial(plain, plain_type, known)),
        )
        for batch in batches
    ]
    translate, one, two, protobuf = map(min, zip(*rounds, strict=True))
    sizes = " and ".join(f"{size(version, known) / SERIES:.0f}" for version in (first, second))
    rate = f"{SERIES / (translate + two):,.0f} samples/s"
    return [
        BenchmarkRow("Remote write, translation of a known series", f"{translate / SERIES * 1e6:.2f} us"),
        row("1.0", one, protobuf),
        row("2.0", two, protobuf),
        BenchmarkRow("Remote write, translation, 2.0 and snappy on one core", rate),
        BenchmarkRow("Remote write, bytes of a sample in 1.0 and 2.0", sizes),
    ]


def row(version: str, ours: float, theirs: float) -> BenchmarkRow:
    shown = f"{theirs / ours:.0f}x ({ours / SERIES * 1e6:.2f} us, {theirs / SERIES * 1e6:.2f} us)"
    name = f"Remote write {version} with snappy, to plain protobuf of 1.0"
    return BenchmarkRow(name, shown, ">= 5x", theirs >= 5 * ours)


def otlp(second: int) -> MetricsData:
    """One reading of the series."""
    message = MetricsData()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="gauge", description="A gauge.")
    metric.gauge.data_points.extend(
        NumberDataPoint(as_double=value, time_unix_nano=second * 10**9, attributes=key_values(labels))
        for labels, value in zip(LABELS, VALUES, strict=True)
    )
    return message


def encoded(version: Encoding, entries: list[Any]) -> None:
    for request in version.requests(entries, LIMIT):
        cramjam.snappy.compress_raw(request.body)


def plain(request_type: Any, entries: list[Any]) -> None:
    """The same request with protobuf's messages."""
    request = request_type()
    for series, samples in entries:
        add = request.timeseries.add()
        for name, value in zip(series.labels[::2], series.labels[1::2], strict=True):
            add.labels.add(name=name, value=value)
        add.samples.add(timestamp=samples[0][0], value=samples[0][1])
    cramjam.snappy.compress_raw(request.SerializeToString())


def size(version: Encoding, entries: list[Any]) -> int:
    return sum(len(cramjam.snappy.compress_raw(request.body)) for request in version.requests(entries, LIMIT))
