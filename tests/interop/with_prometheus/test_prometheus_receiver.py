"""The prometheus receiver beside Debian's Prometheus: both scrape the same pages, and have the same series."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, start_http_server
from prometheus_client.openmetrics import exposition as openmetrics

from otel_zernel.batch import points
from tests.interop.prometheus import configured, scraping, until_ready
from tests.interop.with_prometheus.scraped import (
    PROTOBUF,
    Peer,
    assert_equal,
    job,
    page_of_peer,
    receiving,
    scrape_of,
    stored,
)
from tests.receivers.prometheus.serving import (
    OPENMETRICS,
    TEXT,
    ended,
    metrics_of,
    series_of,
    serving,
)
from tests.receivers.prometheus.test_protobuf import NATIVE, label, page_of


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
            theirs = await stored(prometheus, job=name)
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


async def test_relabelling_and_label_conflicts_end_in_the_same_series(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    """In one zone, the labels of the page win."""
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
    async with serving(TRICKY.encode()) as first, serving(TRICKY.encode()) as second:
        zones = {"honours": first, "renames": second}
        jobs = [
            {
                "job_name": zone,
                "honor_labels": zone == "honours",
                "metric_relabel_configs": rules,
                "relabel_configs": targets,
                "static_configs": [{"targets": [server.address], "labels": {"zone": zone, "x": "target"}}],
            }
            for zone, server in zones.items()
        ]
        async with (
            configured(peer("prometheus"), tmp_path, unused_tcp_port, jobs) as prometheus,
            receiving(None, *jobs) as downstream,
        ):
            for zone, server in zones.items():
                await prometheus.until(f'sum(scrape_samples_scraped{{zone="{zone}"}})', 13)
                theirs = await stored(prometheus, zone=zone)
                ours = series_of(await scrape_of(downstream, server.port))
                assert_equal({key: value for key, value in ours.items() if key[0] != "s_sum"}, theirs)


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
    assert [pytest.approx(our) for our in ours] == expected
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
            metrics = metrics_of(await scrape_of(downstream, unused_tcp_port))
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()
    assert metrics["jobs_total"].sum.data_points[0].as_double == 3
    assert metrics["jobs_total"].sum.data_points[0].start_time_unix_nano > 10**18
    assert metrics["depth"].gauge.data_points[0].as_double == 2.5
    wait = metrics["wait_seconds"]
    assert (wait.unit, wait.description) == ("s", "Wait.")
    assert [*wait.histogram.data_points[0].bucket_counts] == [0, 1, 0]
    assert len(wait.histogram.data_points[0].exemplars) == 1
    assert (metrics["size"].summary.data_points[0].count, metrics["size"].summary.data_points[0].sum) == (1, 7)


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
