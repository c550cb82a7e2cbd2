"""Pages that a receiver scrapes, and the series that it makes of them."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.prometheus import PrometheusReceiver
from otel_zernel_receivers.prometheus.config import PrometheusReceiverConfig
from tests.interop.prometheus import Prometheus
from tests.receivers.prometheus.serving import (
    SeriesKey,
)

Peer = Callable[[str], Path]
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
VARIES = {"scrape_duration_seconds", "scrape_series_added"}
"""The parts of the report that differ from scrape to scrape."""


@asynccontextmanager
async def receiving(receiver: dict[str, Any] | None = None, *jobs: dict[str, Any]) -> AsyncIterator[Downstream]:
    """A running receiver."""
    config = PrometheusReceiverConfig.model_validate(
        {"config": {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}, **(receiver or {})}
    )
    downstream = Downstream()
    context = make_context("receivers", "prometheus", clock=SystemClock())
    running = asyncio.create_task(PrometheusReceiver(config, context).run(downstream))
    try:
        yield downstream
        assert context.health.problems == {}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def job(name: str, port: int, **settings: Any) -> dict[str, Any]:
    return {
        "job_name": name,
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        **settings,
    }


def newest(downstream: Downstream, port: int, *, count: int = 2) -> Batch | None:
    """The newest batch of a target, once it has been scraped `count` times."""
    batches = [batch for batch in downstream.batches if f"127.0.0.1:{port}" in str(batch.metrics.resource_metrics[-1])]
    return batches[-1] if len(batches) >= count else None


async def scrape_of(downstream: Downstream, port: int) -> Batch:
    await until(lambda: newest(downstream, port))
    batch = newest(downstream, port)
    assert batch
    return batch


async def stored(prometheus: Prometheus, **labels: str) -> dict[SeriesKey, float]:
    """The series that Prometheus has with these labels."""
    selected = ",".join(f'{key}="{text}"' for key, text in labels.items())
    series: dict[SeriesKey, float] = {}
    for named, value in await prometheus.series(f"{{{selected}}}"):
        metric = named.pop("__name__")
        series[metric, frozenset((key, _normal(key, text)) for key, text in named.items())] = value
    return series


def _normal(label_name: str, text: str) -> str:
    return repr(float(text)) if label_name in ("le", "quantile") else text


def assert_equal(ours: dict[SeriesKey, float], theirs: dict[SeriesKey, float]) -> None:
    assert sorted(map(str, ours.keys() - theirs.keys())) == []
    assert sorted(map(str, theirs.keys() - ours.keys())) == []
    different = {
        key: (ours[key], value)
        for key, value in theirs.items()
        if key[0] not in VARIES and ours[key] != value and not (math.isnan(value) and math.isnan(ours[key]))
    }
    assert different == {}


async def page_of_peer(url: str, accept: str) -> tuple[bytes, str]:
    """The page and its Content-Type."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(url, headers={"accept": accept})
        return answer.content, answer.headers["content-type"]
