"""Histograms with moving bounds, and with restarts, from a sender through two collectors to the REST API of a store.

The model only counts events. Each drawn series takes every way of the sending collector into a store of the other.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import time_ns
from typing import Any

import httpx
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.otlp.points import key_values
from tests.collectors import collector
from tests.exporters.otlp.collectors import request, send
from tests.interop.with_prometheus.sending.test_moving_bounds import DURATIONS, P90, REPORTS, SECOND, STEPS, of_phases
from tests.libraries.histograms.temporality.test_moving_bounds import counts_of

SERIES = 30
WAYS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "delta": {"temporality": "delta"},
    "fixed": {"moving_bounds": "fixed"},
    "as_is": {"moving_bounds": "as_is"},
    "delta_as_is": {"moving_bounds": "as_is", "temporality": "delta"},
}


def drawn(seed: int, begin: int) -> Iterator[tuple[Metric, list[float]]]:
    """The reports of one series with their new values: cumulative or deltas, any bounds, and restarts."""
    draw = random.Random(seed)  # drawn series, not a secret
    is_cumulative, since, start = draw.random() < 0.7, list[float](), begin
    for report in range(REPORTS):
        time = begin + (report + 1) * SECOND
        if not is_cumulative or draw.random() < 0.2:
            since, start = [], time - SECOND + (SECOND // 2 if is_cumulative else 0)
        new = [round(draw.lognormvariate(0, 1), 3) for _ in range(draw.randrange(1, 40))]
        since = [*since, *new]
        bounds = sorted({round(draw.lognormvariate(0, 1.5), 2) for _ in range(draw.randrange(12))})
        metric = Metric(name="drawn", unit="s")
        metric.histogram.aggregation_temporality = 2 if is_cumulative else 1  # type: ignore[assignment]
        metric.histogram.data_points.add(
            attributes=key_values({"hw.id": f"GPU-{seed}"}),
            start_time_unix_nano=start,
            time_unix_nano=time,
            count=len(since),
            sum=sum(since),
            bucket_counts=counts_of(since, bounds),
            explicit_bounds=bounds,
        )
        yield metric, new


async def test_rest_answers_with_every_event_once_whatever_way_it_took(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port = unused_tcp_port_factory()
    ports, apis = ({way: unused_tcp_port_factory() for way in WAYS} for _ in range(2))
    exporters = {
        f"otlp_grpc/{way}": {"endpoint": f"http://127.0.0.1:{ports[way]}", **options} for way, options in WAYS.items()
    }
    agent = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": exporters,
        "service": {"pipelines": {"metrics": {"receivers": ["otlp"], "exporters": [*exporters]}}},
    }
    async with (
        collector(tmp_path / "gateway", gateway(tmp_path, ports, apis), *ports.values(), *apis.values()),
        collector(tmp_path / "agent", agent, port),
    ):
        begin = time_ns()  # after the start of the exporters: for deltas, older series have only a baseline
        series = [[*drawn(seed, begin)] for seed in range(SERIES)]
        for report in range(REPORTS):
            await send(port, request(*(reports[report][0] for reports in series)))
        await send(port, *(request(metric) for metric in of_phases(begin)))
        for way in WAYS:
            steps = await answer(apis[way], begin, "zernel.step.duration", REPORTS * STEPS)
            assert steps[""]["count"] == REPORTS * STEPS, way
            assert steps[""]["sum"] == pytest.approx(sum(DURATIONS)), way
            assert steps[""]["p90"] == pytest.approx(P90, rel=0.05 if way == "fixed" else 0.02), way
            every = sum(len(new) for reports in series for _, new in reports)
            found = await answer(apis[way], begin, "drawn", every)
            for seed, reports in enumerate(series):
                events = [value for _, new in reports for value in new]
                assert found[f"GPU-{seed}"]["count"] == len(events), (way, seed)
                assert found[f"GPU-{seed}"]["sum"] == pytest.approx(sum(events)), (way, seed)


def gateway(folder: Path, ports: Mapping[str, int], apis: Mapping[str, int]) -> dict[str, Any]:
    """For each way a receiver, a store and its REST API."""
    stores = {way: {"url": f"sqlite:///{folder}/{way}.db"} for way in WAYS}
    return {
        "receivers": {
            f"otlp/{way}": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}} for way, port in ports.items()
        },
        "exporters": {f"sql/{way}": store for way, store in stores.items()},
        "extensions": {f"api/{way}": {"endpoint": f"127.0.0.1:{port}"} for way, port in apis.items()}
        | {f"query/{way}": {**store, "api": f"api/{way}"} for way, store in stores.items()},
        "service": {
            "extensions": [f"{kind}/{way}" for kind in ("api", "query") for way in WAYS],
            "pipelines": {
                f"metrics/{way}": {"receivers": [f"otlp/{way}"], "exporters": [f"sql/{way}"]} for way in WAYS
            },
        },
    }


async def answer(port: int, begin: int, metric: str, count: int) -> dict[str, dict[str, Any]]:
    """The aggregates of a metric by GPU, when they have at least that many values together.

    A metric that has changed its form has aggregates of both: counts and sums are added.
    """
    url = f"http://127.0.0.1:{port}/api/v1/telemetry/aggregations"
    query: dict[str, str | int] = {
        "metric": metric,
        "group_by": "gpu_id",
        "start_time": begin // SECOND,
        "end_time": begin // SECOND + 60,
    }
    async with httpx.AsyncClient() as client:
        for _ in range(100):
            data = (await client.get(url, params=query)).raise_for_status().json()["data"]
            if sum(one["count"] for one in data) >= count:
                break
            await asyncio.sleep(0.1)
    answers: dict[str, dict[str, Any]] = {}
    for one in data:
        of_gpu = answers.setdefault(one["group"]["gpu_id"] or "", {"count": 0, "sum": 0.0})
        of_gpu.update({**one, "count": of_gpu["count"] + one["count"], "sum": of_gpu["sum"] + one["sum"]})
    return answers
