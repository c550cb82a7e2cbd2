"""The prometheus exporter, over HTTP.

`/json`: the series of the page as JSON.
"""

import asyncio
import gzip
import math
import re
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_exporters.prometheus import PrometheusExporter
from otel_zernel_exporters.prometheus.exporter import page_json
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_libraries.prometheus import Format, Page
from tests.api_server import FakeApiServer
from tests.exporters.otlp.certificates import Authority
from tests.libraries.prometheus.formats.delimited import families
from tests.otlp import data, exponential, gauge, node, number

OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0"}


def exporter(clock: FakeClock | None = None, **config: Any) -> PrometheusExporter:
    settings = PrometheusExporter.Config.model_validate({"endpoint": "127.0.0.1:0", **config})
    return PrometheusExporter(settings, make_context("exporters", "prometheus", clock=clock))


async def get(one: PrometheusExporter, path: str = "/metrics", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://{one.address}") as client:
        return await client.get(path, headers=headers)


async def test_exported_metrics_are_on_the_page() -> None:
    async with exporter(label_names={"process.pid": "pid"}) as one:
        await one.export(Batch(node()))
        page = (await get(one)).text
    scope = 'otel_scope_name="zernel"'
    labels = f'host_name="node-1",instance="node-1",job="training/llm",{scope},pid="4242"'
    assert f'zernel_cuda_launch_latency_seconds{{{labels},quantile="0.99"}} 2e-05\n' in page
    assert "# TYPE hw_energy_joules_total counter\n" in page
    assert "hw_gpu_memory_usage_bytes{" in page


async def test_the_page_may_be_on_an_api() -> None:
    api = FakeApiServer()
    config = PrometheusExporter.Config.model_validate({"api": "api"})
    one = PrometheusExporter(config, make_context("exporters", "prometheus", extensions={"api": api}))
    async with exporter() as other, one:
        for served in (one, other):
            await served.export(Batch(node()))
        for path in ("/metrics", "/json"):
            of_server, of_api = await get(other, path), await api.get(path)
            assert of_api.body == of_server.content
            assert of_api.headers["content-type"] == of_server.headers["content-type"]
        assert (await api.request("HEAD", "/metrics")).body == b""
        assert (await api.get("/health")).status == 404
    assert (await api.get("/metrics")).status == 503


@pytest.mark.parametrize("other", [{"endpoint": "localhost:1"}, {"auth": {"authenticator": "basicauth"}}])
def test_a_page_on_an_api_has_no_server_of_its_own(other: Any) -> None:
    with pytest.raises(
        ValidationError, match="exclude each other: set .+ in the api extension".replace(".+", next(iter(other)))
    ):
        PrometheusExporter.Config.model_validate({"api": "api", **other})


async def test_equal_series_of_several_hosts_and_ranks_stay_apart_by_default() -> None:
    async with exporter() as one:
        for rank in range(2):
            for host in ("node-1", "node-2"):
                resource = {"service.name": "llm", "host.name": host, "zernel.rank": rank, "k8s.pod.name": f"{host}-0"}
                await one.export(Batch(data(gauge("a", number(rank, {"process.pid": 7})), resource=resource)))
        lines = [line for line in (await get(one)).text.splitlines() if line.startswith("a{")]
        assert not one.context.drop.counts  # type: ignore[attr-defined]  # a `Dropped` in tests
    assert lines == [
        f'a{{host_name="{host}",job="llm",k8s_pod_name="{host}-0",process_pid="7",zernel_rank="{rank}"}} {rank}'
        for rank in range(2)
        for host in ("node-1", "node-2")
    ]


async def test_only_excluded_makes_labels_of_all_other_attributes() -> None:
    async with exporter(resource_constant_labels={"excluded": ["host.name"]}) as one:
        await one.export(Batch(data(gauge("a", number(1)), resource={"host.name": "node-1", "os.type": "linux"})))
        assert 'a{os_type="linux"} 1\n' in (await get(one)).text


async def test_health_is_ok() -> None:
    async with exporter() as one:
        assert (await get(one, "/health")).text == "ok"


async def test_openmetrics_can_be_turned_off() -> None:
    async with exporter() as on, exporter(enable_open_metrics=False) as off:
        assert (await get(on, **OPENMETRICS)).text == "# EOF\n"
        assert (await get(off, **OPENMETRICS)).text == ""


async def test_the_page_is_compressed_on_the_wire() -> None:
    async with exporter() as one:
        await one.export(Batch(node()))
        async with httpx.AsyncClient() as client, client.stream("GET", f"http://{one.address}/metrics") as response:
            raw = b"".join([chunk async for chunk in response.aiter_raw()])
    assert b"hw_power_watts" in gzip.decompress(raw)


async def test_series_expire_by_the_injected_clock() -> None:
    clock = FakeClock()
    async with exporter(clock, metric_expiration="1m") as one:
        await one.export(Batch(data(gauge("a", number(1)))))
        clock.advance(60)
        assert "\na 1\n" in (await get(one)).text
        clock.advance(1)
        assert (await get(one)).text == ""


async def test_losses_are_counted_as_dropped_items() -> None:
    async with exporter() as one:
        for gpu in ("0", "1"):
            await one.export(Batch(data(gauge("a", number(1)), resource={"hw.id": gpu})))
    assert one.context.drop.counts == {"collision": 1}  # type: ignore[attr-defined]  # make_context's counter


async def test_utf8_names_are_only_for_scrapers_that_request_them() -> None:
    async with exporter(translation_strategy="NoUTF8EscapingWithSuffixes") as one:
        await one.export(Batch(data(gauge("hw.power", number(1), unit="W"))))
        modern = await get(one, accept="text/plain;version=1.0.0;escaping=allow-utf-8")
        assert modern.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
        assert '{"hw.power_watts"} 1\n' in modern.text
        assert "\nhw_power_watts 1\n" in (await get(one)).text


async def test_a_port_in_use_is_an_error_in_one_sentence() -> None:
    async with exporter() as first:
        with pytest.raises(
            CannotStart, match=rf"exporters::prometheus::endpoint: cannot listen on .*:{first.address.port}"
        ):
            await exporter(endpoint=str(first.address)).__aenter__()


async def test_a_port_is_free_again_after_leaving() -> None:
    async with exporter() as one:
        address = str(one.address)
    async with exporter(endpoint=address) as one:
        assert (await get(one)).status_code == 200


async def test_concurrent_scrapes_and_batches_give_complete_pages() -> None:
    batches = [
        Batch(data(*(gauge(f"a{n}", number(version, time=version)) for n in range(200)))) for version in range(1, 30)
    ]
    async with exporter() as one:
        await one.export(batches[0])

        async def feed() -> None:
            for batch in batches[1:]:
                await one.export(batch)

        async def scrape() -> list[str]:
            return [(await get(one)).text for _ in range(5)]

        _, pages = await asyncio.gather(feed(), scrape())
    for page in pages:
        values = {line.split()[1] for line in page.splitlines() if not line.startswith("#")}
        assert len(values) == 1


@pytest.mark.parametrize("label", ["__name__", "0day", "a.b", ""])
def test_a_configured_label_must_be_a_valid_prometheus_label(label: str) -> None:
    with pytest.raises(ValidationError, match="is not a valid label name"):
        exporter(label_names={"process.pid": label})


async def test_the_page_can_be_served_with_tls_to_clients_with_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("localhost")
    token = BearerTokenAuthExtension.Config.model_validate({"token": "s3cret"})
    auth = BearerTokenAuthExtension(token, make_context("extensions", "bearertokenauth"))
    settings = PrometheusExporter.Config.model_validate(
        {
            "endpoint": "127.0.0.1:0",
            "tls": {"cert_file": files.cert_file, "key_file": files.key_file},
            "auth": {"authenticator": "bearertokenauth"},
        }
    )
    context = make_context("exporters", "prometheus", extensions={"bearertokenauth": auth})
    trust = ssl.create_default_context(cafile=authority.ca_file)
    async with PrometheusExporter(settings, context) as one, httpx.AsyncClient(verify=trust) as client:
        await one.export(Batch(node()))
        url = f"https://localhost:{one.address.port}/metrics"
        assert (await client.get(url)).status_code == 401
        assert "hw_power_watts" in (await client.get(url, headers={"authorization": "Bearer s3cret"})).text


async def test_further_series_are_dropped_and_counted() -> None:
    async with exporter(max_series=1) as one:
        await one.export(Batch(data(gauge("a", number(1, {"n": 1}), number(1, {"n": 2})))))
    assert one.context.drop.counts == {"too_many_series": 1}  # type: ignore[attr-defined]  # make_context's counter


PROTOBUF = {"accept": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}


async def test_the_protobuf_format_has_native_histograms_unless_they_are_turned_off() -> None:
    async with exporter() as on, exporter(native_histograms=False) as off:
        for one, has_schema in ((on, True), (off, False)):
            await one.export(Batch(data(exponential("a", 3, (0, [1])))))
            response = await get(one, **PROTOBUF)
            assert response.headers["content-type"].startswith("application/vnd.google.protobuf; proto=io.prometheus.")
            [family] = families(response.content)
            assert family.metric[0].histogram.HasField("schema") is has_schema
            assert len(family.metric[0].histogram.bucket) > 50


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([0.5, 2], ["0.5", "2.0", "+Inf"]),
        ({"other": [1], "zernel.*": [4]}, ["4.0", "+Inf"]),
        ({"zernel.step.duration": [8], "*": [4]}, ["8.0", "+Inf"]),
    ],
)
async def test_the_bounds_of_exponential_histograms_can_be_chosen(bounds: Any, expected: list[str]) -> None:
    async with exporter(histogram_bounds=bounds) as one:
        await one.export(Batch(data(exponential("zernel.step.duration", 3, (0, [1])))))
        assert re.findall(r'le="([^"]+)"', (await get(one)).text) == expected


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([2, 1], "bound 1 is wrong: bounds must be finite and ascending"),
        ([1, float("inf")], "bound inf is wrong"),
        ({"a": []}, "give 1 to 500 bounds, not 0"),
        (list(range(501)), "give 1 to 500 bounds, not 501"),
    ],
)
def test_bounds_must_be_finite_ascending_and_few(bounds: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        exporter(histogram_bounds=bounds)


async def test_json_has_every_family_sample_and_label_of_the_page() -> None:
    async with exporter(without_scope_info=True, resource_constant_labels={}) as one:
        await one.export(Batch(node()))
        async with httpx.AsyncClient(base_url=f"http://{one.address}") as client:
            answer = await client.get("/json")
            text = (await client.get("/metrics")).text
            assert (await client.head("/json")).headers["content-length"] == answer.headers["content-length"]
            assert (await client.post("/json")).status_code == 404
    assert answer.headers["content-type"] == "application/json"
    families = answer.json()
    assert set(families) == {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert sum(len(family["samples"]) for family in families.values()) == len(samples)
    latency = families["zernel_cuda_launch_latency_seconds"]
    assert latency["type"] == "summary"
    labels = {"job": "training/llm", "instance": "node-1", "process_pid": "4242"}
    assert {"name": "zernel_cuda_launch_latency_seconds_count", "labels": labels, "value": 1000.0} in latency["samples"]
    assert families["hw_power_watts"]["samples"][0]["value"] == "+Inf"
    [odd] = families["zernel_odd"]["samples"]
    assert odd["labels"]["path"] == 'C:\\x "y"\n'


@given(st.dictionaries(st.from_regex("[a-z]{1,3}", fullmatch=True), st.text(min_size=1)), st.floats(), st.text())
def test_any_label_value_and_help_are_restored(labels: dict[str, str], value: float, help_: str) -> None:
    page = Page()
    page.update(data(gauge("a", number(value, dict(labels)), description=help_)), 0)
    families = httpx.Response(200, content=page_json(page.render(Format(), 0).decode("utf-8"))).json()
    [sample] = families["a"]["samples"]
    assert sample["labels"] == labels
    assert sample["value"] == value if math.isfinite(value) else sample["value"] in ("NaN", "+Inf", "-Inf")
    assert families["a"]["help"] == (help_.strip() or "OpenTelemetry metric a.")
