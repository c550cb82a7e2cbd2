"""A debug exporter whose output a test reads, and batches to show."""

import io
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import key_values
from otel_zernel.testing import make_context
from otel_zernel_exporters.debug import DebugExporter

NOON = 1_700_049_600_000_000_000  # 2023-11-15T12:00:00Z
UUIDS = ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", "GPU-bc7a12ab-4998-fdc5-0785-2678a929a142")


def debug_exporter(stream: io.TextIOBase, context: Context | None = None, **settings: object) -> DebugExporter:
    config = DebugExporter.Config.model_validate(settings)
    return DebugExporter(config, context or make_context("exporters", "debug"), stream)  # type: ignore[arg-type]  # typeshed: TextIOBase is no TextIO


async def shown(batch: Batch, verbosity: str, **settings: Any) -> str:
    stream = io.StringIO()
    async with debug_exporter(stream, verbosity=verbosity, **settings) as exporter:
        await exporter.export(batch)
    return stream.getvalue()


def node() -> Batch:
    """Two GPUs with launch latencies as summaries, a utilization each, and two readings of the memory."""
    metrics = MetricsData()
    for index, uuid in enumerate(UUIDS):
        resource = metrics.resource_metrics.add()
        who: dict[str, Any] = {"host.name": "train-01", "hw.id": uuid, "index": index, "device": f"nvidia{index}"}
        resource.resource.attributes.extend(key_values(who))
        scope = resource.scope_metrics.add()
        latency = scope.metrics.add(name="cuda.launch.latency", unit="s")
        summary = latency.summary.data_points.add(count=1250, sum=0.009, time_unix_nano=NOON)
        for quantile, value in ((1, 0.002), (0, 3.1e-6), (0.5, 6e-6), (0.999, 1.1e-4)):
            summary.quantile_values.add(quantile=quantile, value=value)
        utilization = scope.metrics.add(name="hw.gpu.utilization", unit="1")
        task = key_values({"hw.gpu.task": "general", "hw.id": uuid})
        utilization.gauge.data_points.add(as_double=0.97, attributes=task, time_unix_nano=NOON)
        memory = scope.metrics.add(name="hw.gpu.memory.usage", unit="By")
        for mebibytes in (2204, 73420):
            memory.gauge.data_points.add(as_int=mebibytes * 2**20, time_unix_nano=NOON)
    return Batch(metrics=metrics)


def one_span() -> Batch:
    traces = TracesData()
    resource = traces.resource_spans.add()
    resource.resource.attributes.extend(key_values({"service.name": "trainer"}))
    span = resource.scope_spans.add().spans.add(name="train step", trace_id=b"\x01" * 16, span_id=b"\x02" * 8, kind=2)
    span.start_time_unix_nano, span.end_time_unix_nano = NOON, NOON + 120_000_000
    span.status.code, span.status.message = Status.STATUS_CODE_ERROR, "out of memory"
    span.attributes.extend(key_values({"step": 7, "tags": ["a", "b"]}))
    span.events.add(name="oom", time_unix_nano=NOON + 1, attributes=key_values({"bytes": 8}))
    span.links.add(trace_id=b"\x03" * 16, span_id=b"\x04" * 8)
    return Batch(spans=traces)


def log_records() -> Batch:
    logs = LogsData()
    resource = logs.resource_logs.add(schema_url="https://example.org")
    resource.resource.attributes.extend(key_values({"service.name": "trainer"}))
    scope = resource.scope_logs.add()
    scope.scope.name = "train.loop"
    first = scope.log_records.add(time_unix_nano=NOON, observed_time_unix_nano=NOON + 5, severity_text="INFO")
    first.severity_number = SeverityNumber.SEVERITY_NUMBER_INFO
    first.body.string_value = "epoch 3 begins"
    second = scope.log_records.add(observed_time_unix_nano=NOON + 120_000_000, trace_id=b"\x01" * 16, flags=1)
    second.severity_number = SeverityNumber.SEVERITY_NUMBER_ERROR2
    second.body.kvlist_value.values.extend(key_values({"oom": True}))
    second.attributes.extend(key_values({"rank": 3, "service.name": "trainer"}))
    second.span_id, second.event_name = b"\x02" * 8, "cuda.oom"
    return Batch(logs=logs)
