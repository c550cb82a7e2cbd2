"""`/json`: the series of the page as JSON."""

import math

import httpx
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel_exporters.prometheus.json_page import page_json
from otel_zernel_libraries.prometheus import Format, Page
from tests.exporters.prometheus.test_exporter import exporter
from tests.libraries.prometheus.otlp import data, gauge, node, number


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
