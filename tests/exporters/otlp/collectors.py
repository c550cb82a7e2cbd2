"""Settings of gateways for the tests of the OTLP exporters, and the totals that their backend sees."""

from collections.abc import Iterable, Mapping
from typing import Any

import grpc
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value
from tests.otlp import data, metrics_in
from tests.receivers.otlp.serving import call


def gateway(port: int, exporter: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The settings of a collector with an otlp receiver and one OTLP exporter, which retries at once."""
    retry = {"initial_interval": "50ms", "max_interval": "200ms", "max_elapsed_time": "0s"}
    [(id_, options)] = exporter.items()
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {id_: {"compression": "none", "retry_on_failure": retry, **options}},
        **{key: value for key, value in more.items() if key != "extensions"},
        "extensions": more.get("extensions", {}),
        "service": {
            "extensions": list(more.get("extensions", {})),
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": [id_]}},
        },
    }


def request(*metrics: Metric) -> bytes:
    return data(*metrics).SerializeToString()


async def send(port: int, *requests: bytes) -> None:
    """Sends the requests one after another. Returns when all are acknowledged."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for request in requests:
            await call(channel)(request, timeout=60)


def sent(requests: Iterable[bytes]) -> list[Metric]:
    """The metrics in encoded requests."""
    return metrics_in(MetricsData.FromString(b"".join(requests)))


def increase(requests: Iterable[bytes], name: str) -> float:
    """The total that a backend derives from the cumulative sums of this name: the increases of all series.

    A new start time, or a decrease, is a reset.
    """
    series: dict[str, list[tuple[int, int, float]]] = {}
    for metric in sent(requests):
        if metric.name == name:
            assert metric.sum.aggregation_temporality == 2
            for point in points(metric):
                if not has_no_value(point):
                    value = point.as_double or point.as_int
                    at = point.time_unix_nano, point.start_time_unix_nano, value
                    series.setdefault(str(point.attributes), []).append(at)
    total = 0.0
    for found in series.values():
        before: tuple[int, float] = (0, 0.0)
        for _, start, value in sorted(found):
            total += value - before[1] if start == before[0] and value >= before[1] else value
            before = start, value
    return total
