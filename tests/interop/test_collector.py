"""The collector with a configuration file, on a recording of 247 GPUs by dcgm-exporter."""

import asyncio
import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import points
from tests.collectors import collector
from tests.interop.prometheus import promtool, scraping, until_ready
from tests.interop.recording import recording
from tests.interop.rotel import LAST_BIT, Rotel, without_zstd

Identity = tuple[str, frozenset[tuple[str, str]], int]
"""The name of a metric, the attributes of a point, and its time in ns, which is 0 if Prometheus sets it."""

# For each recorded field: the metric, its name in Prometheus, the distinguishing attribute, and the factor and the
# divisor from the unit of the field to that of the metric.
FIELDS: Mapping[str, tuple[str, str, dict[str, str], float, float]] = {
    "GPU_UTIL": ("hw.gpu.utilization", "hw_gpu_utilization_ratio", {"hw.gpu.task": "general"}, 1, 100),
    "ENC_UTIL": ("hw.gpu.utilization", "hw_gpu_utilization_ratio", {"hw.gpu.task": "encoder"}, 1, 100),
    "DEC_UTIL": ("hw.gpu.utilization", "hw_gpu_utilization_ratio", {"hw.gpu.task": "decoder"}, 1, 100),
    "MEM_COPY_UTIL": (
        "zernel.gpu.memory.bandwidth.utilization",
        "zernel_gpu_memory_bandwidth_utilization_ratio",
        {},
        1,
        100,
    ),
    "FB_USED": ("hw.gpu.memory.usage", "hw_gpu_memory_usage_bytes", {}, 1 << 20, 1),
    "FB_FREE": ("zernel.gpu.memory.free", "zernel_gpu_memory_free_bytes", {}, 1 << 20, 1),
    "GPU_TEMP": ("hw.temperature", "hw_temperature_celsius", {"hw.sensor_location": "gpu"}, 1, 1),
    "POWER_USAGE": ("hw.power", "hw_power_watts", {}, 1, 1),
    "SM_CLOCK": ("zernel.gpu.clock", "zernel_gpu_clock_hertz", {"zernel.gpu.clock.domain": "sm"}, 1_000_000, 1),
    "MEM_CLOCK": ("zernel.gpu.clock", "zernel_gpu_clock_hertz", {"zernel.gpu.clock.domain": "memory"}, 1_000_000, 1),
}


def expected() -> tuple[dict[Identity, float], dict[Identity, float]]:
    """The values in the recording, read by Python's csv module, by OpenTelemetry names and by Prometheus names."""
    by_otlp, by_prometheus = {}, {}
    with recording().open(newline="") as file:
        for row in csv.DictReader(file):
            field = row["metric_name"].removeprefix("DCGM_FI_DEV_")
            metric, family, attribute, factor, divisor = FIELDS[field]
            value = float(row["value"]) * factor / divisor
            attributes = {"hw.id": row["uuid"], **attribute}
            labels = {name.replace(".", "_"): text for name, text in attributes.items()} | identity_labels(row)
            time = datetime.fromisoformat(row["timestamp"])
            by_otlp[metric, frozenset(attributes.items()), int(time.timestamp()) * 10**9] = value
            by_prometheus[family, frozenset(labels.items()), 0] = value
    assert len(by_otlp) == len(by_prometheus) == 2470
    return by_otlp, by_prometheus


def identity_labels(row: Mapping[str, str]) -> dict[str, str]:
    """The labels that say which GPU a row is about, by the default of `resource_constant_labels`."""
    gpu = {"hw_type": "gpu", "hw_model": row["modelName"], "zernel_gpu_index": row["gpu_id"]}
    return {"host_name": row["Hostname"], **gpu}


def reading(folder: Path) -> dict[str, Any]:
    """A csv receiver of the recording that saves rejected rows."""
    return {"csv": {"files": [str(recording())], "layout": "dcgm", "rejects": str(folder / "rejects.txt")}}


async def test_prometheus_has_every_recorded_value(
    peer: Callable[[str], Path], tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    _, values = expected()
    page, own, port = (unused_tcp_port_factory() for _ in range(3))
    settings = {
        "receivers": reading(tmp_path),
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}"}},
        "service": {
            "telemetry": {
                "metrics": {"readers": [{"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": own}}}}]}
            },
            "pipelines": {"metrics": {"receivers": ["csv"], "exporters": ["prometheus"]}},
        },
    }
    async with collector(tmp_path, settings), httpx.AsyncClient() as client:
        await until_ready(client, f"http://127.0.0.1:{page}/health")
        async with scraping(peer("prometheus"), tmp_path, port, dcgm=page, own=own) as prometheus:
            recorded = '{job="dgx_dcgm_exporter",__name__!="target_info"}'
            await prometheus.until("otelcol_exporter_sent_metric_points", 2470)
            await prometheus.until(f"count({recorded})", 2470)
            assert await prometheus.value("otelcol_receiver_accepted_metric_points") == 2470
            assert await prometheus.series("zernel_dropped_items") == []
            series = await prometheus.series(recorded)
            assert {identity_of(labels): value for labels, value in series} == values
            assert await prometheus.value("count(count by (hw_id) (hw_power_watts))") == 247
        text = (await client.get(f"http://127.0.0.1:{page}/metrics")).content
        assert await promtool(peer("promtool"), text) == ""
        assert b" OpenTelemetry metric " not in text  # the help of a metric without a description
    assert (tmp_path / "rejects.txt").read_text() == ""


def identity_of(labels: Mapping[str, str]) -> Identity:
    """The name, and the labels that come from the attributes of the point."""
    own = {"__name__", "job", "instance", "otel_scope_name", "otel_scope_version"}
    return labels["__name__"], frozenset((name, text) for name, text in labels.items() if name not in own), 0


async def test_rotels_sink_has_every_recorded_value_by_every_route(rotel: Rotel, tmp_path: Path) -> None:
    values, _ = expected()
    async with without_zstd(f"http://{rotel.http}") as gateway:
        grpc, http = f"http://{rotel.grpc}", f"http://{rotel.http}"
        exporters = {
            "otlp_grpc/gzip": {"endpoint": grpc},
            "otlp_http/proto_gzip": {"endpoint": http},
            "otlp_http/json_gzip": {"endpoint": http, "encoding": "json"},
            "otlp_http/proto_zstd": {"endpoint": gateway, "compression": "zstd"},
            "otlp_http/json_zstd": {"endpoint": gateway, "compression": "zstd", "encoding": "json"},
        }
        async with collector(tmp_path, marked(tmp_path, exporters), options=["--exit-when-done"]) as running:
            assert await running.ended() == 0, running.log
            came = await arrived(rotel, len(exporters) * len(values))
    assert came.keys() == exporters.keys()
    for exporter, its in came.items():
        assert len(its) == len(values)
        assert dict(its) == pytest.approx(values, rel=LAST_BIT["json" if "json" in exporter else "proto"], abs=0)
    assert (tmp_path / "rejects.txt").read_text() == ""


def marked(folder: Path, exporters: Mapping[str, Any]) -> dict[str, Any]:
    """One receiver and a pipeline for each exporter, which adds its id to every resource."""
    marks = {
        f"resource/{exporter.replace('/', '_')}": [{"key": "sent.by", "value": exporter}] for exporter in exporters
    }
    pipelines = {
        f"metrics/{mark.partition('/')[2]}": {"receivers": ["csv"], "processors": [mark], "exporters": [exporter]}
        for mark, exporter in zip(marks, exporters, strict=True)
    }
    return {
        "receivers": reading(folder),
        "processors": {mark: {"attributes": actions} for mark, actions in marks.items()},
        "exporters": dict(exporters),
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": pipelines},
    }


async def arrived(rotel: Rotel, count: int) -> dict[str, list[tuple[Identity, float]]]:
    """Waits for this number of points. Returns the points and values by the id on their resource."""
    async with asyncio.timeout(60):
        while len(found := list(marked_points(rotel.sink.of("metrics")))) < count:
            await rotel.sink.next()
    by_mark: defaultdict[str, list[tuple[Identity, float]]] = defaultdict(list)
    for mark, identity, value in found:
        by_mark[mark].append((identity, value))
    return by_mark


def marked_points(requests: Iterable[bytes]) -> Iterator[tuple[str, Identity, float]]:
    for resource in MetricsData.FromString(b"".join(requests)).resource_metrics:
        mark = texts(resource.resource.attributes)["sent.by"]
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in points(metric):
                identity = metric.name, frozenset(texts(point.attributes).items()), point.time_unix_nano
                yield mark, identity, point.as_double


def texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}
