"""A text that is not UTF-8, a deep value or a damaged attribute costs no component an item.

The check on receipt does not see them, so their sender has its acknowledgement.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import Exporter, Processor
from otel_zernel.errors import Retryable
from otel_zernel.testing import Dropped
from tests import otlp
from tests.contract.test_components import REGISTRY, build, working

BAD = b"\xc3(\xfeX"
"""In place of a text of the same length."""
ITEMS = 5


def fill(attributes: Any, depth: int) -> None:
    attributes.add(key="cmd").value.string_value = "TEXT"
    attributes.add(key="TEXT").value.int_value = 1
    value = attributes.add(key="deep").value
    for _ in range(depth):
        value = value.array_value.values.add()
    value.string_value = "x"


def metrics(depth: int) -> MetricsData:
    data = MetricsData()
    resource = data.resource_metrics.add()
    fill(resource.resource.attributes, depth)
    scope = resource.scope_metrics.add()
    fill(scope.scope.attributes, depth)
    scope.scope.name = "TEXT"
    for number in range(ITEMS):
        gauge = scope.metrics.add(name=f"g{number}").gauge.data_points.add(as_double=1.0, time_unix_nano=1)
        total = scope.metrics.add(name=f"s{number}").sum
        total.is_monotonic, total.aggregation_temporality = True, AGGREGATION_TEMPORALITY_CUMULATIVE
        point = total.data_points.add(as_int=1, time_unix_nano=2, start_time_unix_nano=1)
        fill(point.exemplars.add(as_int=1, time_unix_nano=1).filtered_attributes, depth)
        counts = scope.metrics.add(name=f"hTEXT{number}", unit="TEXT").histogram
        counts.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        buckets = counts.data_points.add(count=1, sum=1.0, bucket_counts=[1, 0], explicit_bounds=[1.0])
        for one in (gauge, point, buckets):
            fill(one.attributes, depth)
    return data


def traces(depth: int) -> TracesData:
    data = TracesData()
    resource = data.resource_spans.add()
    fill(resource.resource.attributes, depth)
    for number in range(ITEMS):
        span = resource.scope_spans.add().spans.add(name="TEXT", trace_id=b"\1" * 16, span_id=bytes([number + 1]) * 8)
        span.start_time_unix_nano, span.end_time_unix_nano = 1, 2
        fill(span.attributes, depth)
        fill(span.events.add(name="TEXT").attributes, depth)
        fill(span.links.add(trace_id=b"\2" * 16, span_id=b"\3" * 8).attributes, depth)
    return data


def logs(depth: int) -> LogsData:
    data = LogsData()
    resource = data.resource_logs.add()
    fill(resource.resource.attributes, depth)
    for number in range(ITEMS):
        record = resource.scope_logs.add().log_records.add(time_unix_nano=number + 1, severity_number=9)
        record.body.string_value = "TEXT"
        fill(record.attributes, depth)
    return data


def profiles(depth: int) -> ProfilesData:
    data = otlp.profiles(*range(ITEMS))
    fill(data.resource_profiles[0].resource.attributes, depth)
    data.dictionary.string_table.append("TEXT")
    data.dictionary.attribute_table[1].key_strindex = len(data.dictionary.string_table) - 1
    return data


def batch(text: bytes, depth: int) -> Batch:
    encoded = [make(depth).SerializeToString().replace(b"TEXT", text) for make in (metrics, traces, logs, profiles)]
    return Batch.from_bytes(metrics=encoded[0], spans=encoded[1], logs=encoded[2], profiles=encoded[3])


DAMAGED = pytest.mark.parametrize(("text", "depth"), [(BAD, 1), (b"TEXT", 70), (BAD, 70)], ids=["text", "deep", "both"])


@DAMAGED
@pytest.mark.parametrize("type_", REGISTRY.aliases("processors"))
def test_a_processor_passes_on_the_same_items(type_: str, text: bytes, depth: int) -> None:
    counts = []
    for given in (batch(b"TEXT", 1), batch(text, depth)):
        processor = build("processors", type_)
        assert isinstance(processor, Processor)
        came = [one for one in (*processor.process(given.only(processor.signals)), *processor.flush()) if one.signals]
        for one in came:
            assert [one.message(signal) for signal in one.signals]
        counts.append([one.counts for one in came])
    assert counts[1] == counts[0]


SOUND: dict[str, Counter[str]] = {}
"""What each exporter counts as lost of sound data."""


def made(type_: str, folder: Path) -> Exporter:
    folder.mkdir()
    exporter = working("exporters", type_, folder)
    assert isinstance(exporter, Exporter)
    return exporter


async def losses(exporter: Exporter, text: bytes, depth: int) -> Counter[str]:
    """What an exporter counts as lost of these data."""
    async with exporter:
        given = (batch(text, depth).only({signal}) for signal in exporter.signals)
        exports = [exporter.export(one) for some in given for one in exporter.prepare(some, dropped=False)]
        for error in await asyncio.gather(*exports, return_exceptions=True):
            assert error is None or isinstance(error, Retryable), "no server listens for exporters that send"
    assert isinstance(exporter.context.drop, Dropped)
    return exporter.context.drop.counts


@DAMAGED
@pytest.mark.parametrize("type_", REGISTRY.aliases("exporters"))
async def test_an_exporter_takes_every_item(type_: str, text: bytes, depth: int, tmp_path: Path) -> None:
    if type_ not in SOUND:
        SOUND[type_] = await losses(made(type_, tmp_path / "sound"), b"TEXT", 1)
    assert await losses(made(type_, tmp_path / "damaged"), text, depth) == SOUND[type_]
