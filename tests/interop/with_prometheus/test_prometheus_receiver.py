"""The prometheus receiver beside Debian's Prometheus: both scrape the same pages, and have the same series."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.internal.decoder import _DecodeVarint  # type: ignore[attr-defined]
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, start_http_server
from prometheus_client.openmetrics import exposition as openmetrics

from otel_zernel.batch import Batch, points
from otel_zernel.clock import SystemClock
from otel_zernel.exposition.formats.messages import MetricFamilyMessage
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_receivers.prometheus import PrometheusReceiver
from otel_zernel_receivers.prometheus.config import PrometheusReceiverConfig
from otel_zernel_receivers.prometheus.config.scrape import TEXT_PROTOCOLS
from otel_zernel_receivers.prometheus.pages.formats import accept_header
from otel_zernel_receivers.prometheus.pages.text import TextReader
from tests.core.exposition.otlp import data, exponential, node
from tests.interop.prometheus import Prometheus, configured, scraping, until_ready
from tests.receivers.prometheus.serving import (
    OPENMETRICS,
    TEXT,
    SeriesKey,
    ended,
    metrics_of,
    series_of,
    serving,
)
from tests.receivers.prometheus.test_protobuf import NATIVE, label, page_of

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


async def stored(prometheus: Prometheus, name: str) -> dict[SeriesKey, float]:
    """The series that Prometheus has of a job."""
    found: dict[SeriesKey, float] = {}
    for labels, value in await prometheus.series(f'{{job="{name}"}}'):
        metric = labels.pop("__name__")
        found[metric, frozenset((key, _normal(key, text)) for key, text in labels.items())] = value
    return found


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


@asynccontextmanager
async def node_exporter(program: Path, port: int) -> AsyncIterator[str]:
    """A running node_exporter and its page."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        program, f"--web.listen-address=127.0.0.1:{port}", stdout=quiet, stderr=quiet
    )
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        async with httpx.AsyncClient() as client:
            await until_ready(client, url)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def test_prometheus_and_the_receiver_have_the_same_series_of_real_pages(
    peer: Peer, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """Recorded pages of node_exporter and Prometheus, in text and protobuf, and of the Python client in OpenMetrics."""
    listen, own = unused_tcp_port_factory(), unused_tcp_port_factory()
    accepts = {"text": TEXT, "protobuf": PROTOBUF}
    (tmp_path / "first").mkdir()
    pages = {"python": (openmetrics_page(), OPENMETRICS)}
    async with (
        node_exporter(peer("prometheus-node-exporter"), listen) as url,
        scraping(peer("prometheus"), tmp_path / "first", own, node=listen) as first,
    ):
        await first.scraped("node")
        for form, accept in accepts.items():
            pages[f"node_{form}"] = await page_of_peer(url, accept)
            pages[f"prometheus_{form}"] = await page_of_peer(f"http://127.0.0.1:{own}/metrics", accept)
    assert all(content_type.split(";")[0] in PROTOBUF for _, content_type in (pages["node_protobuf"],))
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(serving(page, content_type=content_type))
            for name, (page, content_type) in pages.items()
        }
        ports = {name: server.port for name, server in servers.items()}
        features = ("exemplar-storage", "native-histograms")  # the second one makes it read protobuf
        jobs = [job(*pair) for pair in ports.items()]
        prometheus = await stack.enter_async_context(
            configured(peer("prometheus"), tmp_path, unused_tcp_port_factory(), jobs, features)
        )
        downstream = await stack.enter_async_context(receiving(None, *jobs))
        await prometheus.scraped(*ports)
        for name, port in ports.items():
            batch = await scrape_of(downstream, port)
            ours = series_of(batch)
            assert len(ours) > (10 if name == "python" else 300)
            theirs = await stored(prometheus, name)
            assert_equal(ours, {key: value for key, value in theirs.items() if not key[0].endswith("_created")})


TRICKY = """\
# HELP a A "metric" with \\\\ and \\n.
# TYPE a counter
a_total{x="\\\\ \\"",w="\\n",job="own"} 1e5
a_total{x="",y="}"} 0.1
# TYPE h histogram
h_bucket{le="0.1"} 0
h_bucket{le="1.0"} 5
h_bucket{le="+Inf"} 7
h_sum -3.5
h_count 7
# TYPE s summary
s{quantile="0.5"} NaN
s{quantile="0.99"} +Inf
s_sum 2
s_count 3
u 1.7976931348623157e308
untyped_bucket 3
"""


@pytest.mark.parametrize("honor", [True, False])
async def test_relabelling_and_label_conflicts_end_in_the_same_series(
    honor: bool, peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    rules = [
        {"source_labels": ["__name__"], "regex": "un(.*)", "target_label": "__name__", "replacement": "${1}_un"},
        {"source_labels": ["x", "y"], "separator": "-", "regex": "(.*)-(.*)", "target_label": "z"},
        {"source_labels": ["y"], "regex": "}", "action": "hashmod", "modulus": 7, "target_label": "shard"},
        {"regex": "y", "action": "labeldrop"},
        {"source_labels": ["__name__"], "regex": "s_sum", "action": "drop"},
    ]
    targets = [
        {"source_labels": ["__address__"], "regex": "(.*):(.*)", "target_label": "host", "replacement": "${1}!"},
        {"source_labels": ["__meta_no"], "action": "lowercase", "target_label": "none"},
        {"source_labels": ["__scheme__"], "action": "uppercase", "target_label": "scheme"},
        {"regex": "__(metrics)_(path)__", "action": "labelmap", "replacement": "${1}${2}"},
    ]
    async with serving(TRICKY.encode()) as server:
        settings = {
            "honor_labels": honor,
            "metric_relabel_configs": rules,
            "relabel_configs": targets,
            "static_configs": [{"targets": [server.address], "labels": {"zone": "a", "x": "target"}}],
        }
        tricky = {"job_name": "tricky", **settings}
        async with (
            configured(peer("prometheus"), tmp_path, unused_tcp_port, [tricky]) as prometheus,
            receiving(None, tricky) as downstream,
        ):
            await prometheus.until("sum(scrape_samples_scraped)", 13)
            theirs = await stored_everywhere(prometheus)
            ours = series_of(await scrape_of(downstream, server.port))
            assert_equal({key: value for key, value in ours.items() if key[0] != "s_sum"}, theirs)


async def stored_everywhere(prometheus: Prometheus) -> dict[SeriesKey, float]:
    """Every series, whatever its job."""
    found = {}
    for labels, value in await prometheus.series('{__name__=~".+"}'):
        name = labels.pop("__name__")
        found[name, frozenset((key, _normal(key, text)) for key, text in labels.items())] = value
    return found


async def test_native_histograms_have_the_buckets_that_prometheus_has(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    family = {"name": "h", "type": 4, "metric": [{"label": [label("a", "b")], "histogram": NATIVE}]}
    async with serving(page_of(family), content_type=PROTOBUF) as server:
        features = ("native-histograms",)
        native = job("native", server.port, scrape_native_histograms=True)
        async with (
            configured(
                peer("prometheus"), tmp_path, unused_tcp_port, [job("native", server.port)], features
            ) as prometheus,
            receiving(None, native) as downstream,
        ):
            await prometheus.scraped("native")
            (found,) = (await prometheus.get("query", query="h"))["result"]
            theirs = found["histogram"][1]
            metric = metrics_of(await scrape_of(downstream, server.port))["h"]
    (point,) = metric.exponential_histogram.data_points
    base = 2 ** (2**-point.scale)
    expected = [(float(low), float(high), float(count)) for _, low, high, count in theirs["buckets"]]
    ours = [
        *((-(base ** (point.negative.offset + i + 1)), -(base ** (point.negative.offset + i)), n)
          for i, n in reversed([*enumerate(point.negative.bucket_counts)]) if n),
        (-point.zero_threshold, point.zero_threshold, point.zero_count),
        *((base ** (point.positive.offset + i), base ** (point.positive.offset + i + 1), n)
          for i, n in enumerate(point.positive.bucket_counts) if n),
    ]  # fmt: skip
    assert [pytest.approx(one) for one in ours] == expected
    assert (float(theirs["count"]), float(theirs["sum"])) == (point.count, point.sum)


def client_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("jobs", "Jobs.", ["kind"], registry=registry).labels("a").inc(3)
    Gauge("depth", "Depth.", registry=registry).set(2.5)
    Histogram("wait", "Wait.", unit="seconds", buckets=[0.1, 1], registry=registry).observe(0.5, {"trace_id": "00"})
    Summary("size", "Size.", registry=registry).observe(7)
    Info("build", "Build.", registry=registry).info({"version": "1"})
    Enum("state", "State.", states=["on", "off"], registry=registry).state("off")
    return registry


def openmetrics_page() -> bytes:
    page: bytes = openmetrics.generate_latest(client_registry())  # type: ignore[no-untyped-call]
    return page


async def test_the_page_of_the_python_client_comes_out_complete(unused_tcp_port: int) -> None:
    server, thread = start_http_server(unused_tcp_port, "127.0.0.1", client_registry())
    try:
        async with receiving(None, job("python", unused_tcp_port)) as downstream:
            found = metrics_of(await scrape_of(downstream, unused_tcp_port))
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()
    assert found["jobs_total"].sum.data_points[0].as_double == 3
    assert found["jobs_total"].sum.data_points[0].start_time_unix_nano > 10**18
    assert found["depth"].gauge.data_points[0].as_double == 2.5
    wait = found["wait_seconds"]
    assert (wait.unit, wait.description) == ("s", "Wait.")
    assert [*wait.histogram.data_points[0].bucket_counts] == [0, 1, 0]
    assert len(wait.histogram.data_points[0].exemplars) == 1
    assert (found["size"].summary.data_points[0].count, found["size"].summary.data_points[0].sum) == (1, 7)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_open_metrics": False},
        {"translation_strategy": "NoTranslation"},
        {"send_timestamps": True, "without_scope_info": True},
    ],
)
async def test_a_page_of_the_exporter_that_is_scraped_and_exported_is_the_same_page(settings: dict[str, Any]) -> None:
    async def page(exporter: PrometheusExporter) -> dict[bytes, tuple[str, int]]:
        """Each sample's value and time."""
        async with httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{exporter.address.port}/metrics"
            answer = await client.get(url, headers={"accept": accept_header(TEXT_PROTOCOLS)})
        is_openmetrics = "openmetrics" in answer.headers["content-type"]
        read = TextReader().read(answer.content, openmetrics=is_openmetrics, known=())
        return {
            key: (repr(value), read.times_ns.get(position, 0))
            for position, (key, value) in enumerate(zip(read.keys, read.values, strict=True))
            if isinstance(key, bytes)
        }

    async with exporter(settings) as first, exporter(settings) as second:
        await first.export(Batch(node()))
        async with receiving(None, job("first", first.address.port)) as downstream:
            await second.export(await scrape_of(downstream, first.address.port))
        before, after = await page(first), await page(second)
    assert len(before) > 20
    assert {key: value for key, value in after.items() if key in before} == before


def exponentials() -> MetricsData:
    """Exponential histograms of many forms: empty, with zeros, a threshold, negative values, 160 buckets."""
    some = (-3, [1, 0, 2, 5])
    metrics = (
        exponential("h.empty", 3),
        exponential("h.zeros", 3, zero_count=5, sum_=0.0),
        exponential("h.wide.zeros", 2, some, zero_count=5, zero_threshold=1e-3, sum_=9.0),
        exponential("h.negative", 3, some, (-4, [1, 0, 3]), zero_count=1),
        exponential("h.many", 3, (-80, [1] * 160), sum_=160.0),
        exponential("h.large", 0, (1020, [1, 0, 0, 1]), sum_=1e307),
    )
    return data(*metrics, resource={"service.name": "llm", "service.instance.id": "node-1"})


def histogram_families(body: bytes) -> list[bytes]:
    """The histograms of a page in the protobuf format, without the times since which they count."""
    families = []
    while body:
        size, start = _DecodeVarint(body, 0)
        family = MetricFamilyMessage.FromString(body[start : start + size])
        body = body[start + size :]
        for metric in family.metric:
            metric.histogram.ClearField("created_timestamp")
        if family.name.startswith("h_"):
            families.append(family.SerializeToString())
    return sorted(families)


async def test_a_native_histogram_of_the_exporter_that_is_scraped_and_exported_is_the_same_in_all_formats() -> None:
    async def pages(exporter: PrometheusExporter) -> tuple[list[str], list[bytes]]:
        """The histograms' lines in the text format, and their messages in the protobuf format."""
        async with httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{exporter.address.port}/metrics"
            text, encoded = [await client.get(url, headers={"accept": accept}) for accept in ("text/plain", PROTOBUF)]
        lines = [line for line in text.text.splitlines() if line.startswith("h_")]
        return lines, histogram_families(encoded.content)

    settings = {"without_scope_info": True}
    async with exporter(settings) as first, exporter(settings) as second:
        await first.export(Batch(exponentials()))
        native = job("first", first.address.port, scrape_native_histograms=True, honor_labels=True)
        async with receiving(None, native) as downstream:
            await second.export(await scrape_of(downstream, first.address.port))
        (lines, messages), again = await pages(first), await pages(second)
    assert len(messages) == 6
    assert 'h_zeros_seconds_bucket{instance="node-1",job="llm",le="0.0"} 5' in lines
    assert again == (lines, messages)


def exporter(settings: dict[str, Any]) -> PrometheusExporter:
    config = PrometheusExporter.Config.model_validate({"endpoint": "127.0.0.1:0", **settings})
    return PrometheusExporter(config, make_context("exporters", "prometheus"))


async def test_series_of_a_target_that_leaves_a_file_end(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"
    async with serving(b"a 1\n") as server, serving(b"b 1\n") as other:
        file.write_text(f'[{{"targets": ["{server.address}"], "labels": {{"zone": "z"}}}}]')
        discovery = {"job_name": "files", "file_sd_configs": [{"files": [str(tmp_path / "*.json")]}]}
        async with receiving(None, discovery) as downstream:
            first = await scrape_of(downstream, server.port)
            assert {("zone", "z"), ("job", "files")} <= next(k for n, k in series_of(first) if n == "a")
            file.write_text(f'[{{"targets": ["{other.address}"]}}]')
            await scrape_of(downstream, other.port)
            ends = [batch for batch in downstream.batches if ended(batch)]
            assert [ended(batch) >= {"a", "up"} for batch in ends] == [True]
            assert sum(map(len, map(points, metrics_of(ends[0]).values()))) == 6
