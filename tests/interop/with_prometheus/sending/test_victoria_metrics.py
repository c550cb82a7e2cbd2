"""VictoriaMetrics with its defaults gets every histogram in a form that its queries read."""

from pathlib import Path

import httpx
import pytest

from deploy.grafana.boards import DASHBOARDS
from deploy.grafana.boards.collectives import COLLECTIVES
from deploy.grafana.panels import by_quantile
from otel_zernel.batch import Batch
from otel_zernel.errors import Correctable
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpHttpExporter
from tests.deploy.grafana.test_queries import QUERIES, resolved
from tests.exporters.prometheusremotewrite.exporting import exporter
from tests.interop.victoria_metrics import RELEASES, find_victoria_metrics, victoria
from tests.interop.with_prometheus.test_remote_write import now, url
from tests.otlp import SECOND, data, exponential, gauge, number

RESOURCE = {"service.name": "llm", "service.instance.id": "node-1"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("message", ["io.prometheus.write.v2.Request", "prometheus.WriteRequest"], ids=["2.0", "1.0"])
async def test_exponential_histograms_have_quantiles(
    tmp_path: Path, unused_tcp_port: int, message: str, release: str
) -> None:
    name, labels = "zernel_nccl_collective_duration_seconds", {"zernel.nccl.operation": "AllReduce"}
    begin = now() - 60 * SECOND
    async with victoria(find_victoria_metrics(release), tmp_path, unused_tcp_port) as server:
        async with exporter(url(unused_tcp_port), protobuf_message=message) as (writer, dropped):
            for second in range(0, 60, 5):
                points = exponential(
                    "zernel.nccl.collective.duration",
                    3,
                    (-8, [second, 2 * second]),
                    sum_=second * 1.5,
                    time=begin + second * SECOND,
                )
                points.exponential_histogram.data_points[0].attributes.add(
                    key="zernel.nccl.operation"
                ).value.string_value = labels["zernel.nccl.operation"]
                size = gauge("zernel.other", number(1.0, time=begin + second * SECOND))
                await writer.export(Batch(data(points, size, resource=RESOURCE)))
        assert dropped.counts == {}
        await server.until("count(zernel_other)", 1)
        await server.until(f"count({name}_count)", 1)
        for query in by_quantile(name, 'job="llm"', "job", 0.5, 0.99):
            assert 0.4 < await server.value(query.expression.replace("$__rate_interval", "1m")) < 0.7
        queries = [query for row in COLLECTIVES.rows for panel in row.panels for query in panel.queries]
        [calls] = [query for query in queries if query.histograms == "classic" and "_count" in query.expression]
        text = calls.expression.replace("$__rate_interval", "1m").replace("$job", "llm")
        assert await server.value(text) == pytest.approx(3, rel=0.2)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_wrong_path_keeps_the_batch(tmp_path: Path, unused_tcp_port: int, release: str) -> None:
    batch = Batch(data(gauge("g", number(1.0, time=now())), resource=RESOURCE))
    async with victoria(find_victoria_metrics(release), tmp_path, unused_tcp_port):
        async with exporter(f"http://127.0.0.1:{unused_tcp_port}/api/v1/wrte") as (writer, dropped):
            with pytest.raises(Correctable, match="this path does not accept remote write"):
                await writer.export(batch)
            assert dropped.counts == {}
        settings = OtlpHttpExporter.Config.model_validate({"endpoint": f"http://127.0.0.1:{unused_tcp_port}"})
        async with OtlpHttpExporter(settings, make_context("exporters", "otlp_http")) as sender:
            with pytest.raises(Correctable, match="http://host:8428/opentelemetry for VictoriaMetrics"):
                await sender.export(batch)


@pytest.mark.parametrize("release", RELEASES)
async def test_it_understands_every_query_of_the_dashboards_but_those_of_native_histograms(
    tmp_path: Path, unused_tcp_port: int, release: str
) -> None:
    refused: set[str] = set()
    variables = {variable.name: ".*" for board in DASHBOARDS for variable in board.variables}
    async with victoria(find_victoria_metrics(release), tmp_path, unused_tcp_port) as server:
        for _, _, query, chosen in QUERIES:
            try:
                await server.series(resolved(query.expression, variables | dict(chosen)))
            except httpx.HTTPStatusError:
                refused.add(query.expression)
    assert refused == {query.expression for _, _, query, _ in QUERIES if query.histograms == "native"}
