"""Gauges and sums on a page.

The ASGI application of a page.

The labels `job` and `instance`, `target_info`, and resource attributes as labels.

Summaries, histograms and exemplars.
"""

import threading
from collections.abc import AsyncIterator

import httpx
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, NumberDataPoint

from otel_zernel.otlp.points import Attributes, key_values
from otel_zernel_libraries.prometheus import Format, Page, ResourceLabels, metrics_app
from tests.libraries.prometheus.shown import OPENMETRICS, TEXT, Shown
from tests.otlp import (
    NOW,
    data,
    ended,
    exponential,
    gauge,
    histogram,
    number,
    summary,
    total,
)


def test_a_family_has_its_comments_and_its_series() -> None:
    shown = Shown(target_labels=False)
    shown.update(
        gauge("hw.power", number(1.5, {"hw.id": "a"}), number(2, {"hw.id": "b"}), unit="W", description="Now.")
    )
    assert shown.text() == (
        "# HELP hw_power_watts Now.\n"
        "# TYPE hw_power_watts gauge\n"
        'hw_power_watts{hw_id="a"} 1.5\n'
        'hw_power_watts{hw_id="b"} 2\n'
    )


def test_openmetrics_has_units_no_total_in_family_names_and_an_end(shown: Shown) -> None:
    shown.update(total("hw.energy", number(5.0), unit="J", description='In "use".'))
    assert shown.text(OPENMETRICS) == (
        '# HELP hw_energy_joules In \\"use\\".\n'
        "# TYPE hw_energy_joules counter\n"
        "# UNIT hw_energy_joules joules\n"
        "hw_energy_joules_total 5.0\n"
        "# EOF\n"
    )


def test_a_counter_is_unknown_to_openmetrics_if_its_shorter_name_is_in_use(shown: Shown) -> None:
    shown.update(total("jobs", number(1)), gauge("jobs", number(2)))
    assert "# TYPE jobs_total unknown\n" in shown.text(OPENMETRICS)
    assert "# TYPE jobs gauge\n" in shown.text(OPENMETRICS)
    assert "# TYPE jobs_total counter\n" in shown.text()


def test_without_suffixes_names_are_unchanged() -> None:
    shown = Shown(translation_strategy="UnderscoreEscapingWithoutSuffixes")
    shown.update(total("otelcol_process_uptime", number(1.5), unit="s"))
    assert "# TYPE otelcol_process_uptime counter\notelcol_process_uptime 1.5\n" in shown.text()
    assert "# TYPE otelcol_process_uptime unknown\notelcol_process_uptime 1.5\n" in shown.text(OPENMETRICS)


def test_utf8_names_are_in_quotes_inside_the_braces() -> None:
    shown = Shown(translation_strategy="NoTranslation")
    shown.update(gauge("hw.power", number(1, {"hw.id": "a", "plain": "b"})), summary("zernel.wait", {0.5: 1.0}, 2, 3.0))
    assert '# TYPE "hw.power" gauge\n{"hw.power","hw.id"="a",plain="b"} 1\n' in shown.text()
    assert '{"zernel.wait",quantile="0.5"} 1.0\n{"zernel.wait_count"} 2\n{"zernel.wait_sum"} 3.0\n' in shown.text()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (0.0, "0"), (1e-9, "1e-09"), (-3, "-3")],
)
def test_numbers_are_written_as_prometheus_reads_them(shown: Shown, value: float, expected: str) -> None:
    shown.update(gauge("a", number(value), number(0.5, {"other": "series"})))
    assert shown.lines() == [f"a {expected}", 'a{other="series"} 0.5']


def test_attributes_of_any_type_become_text(shown: Shown) -> None:
    array = AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(string_value="ü")]))
    pairs = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(bool_value=True))]))
    attributes = [
        *key_values({"bool": False, "int": -1, "float": 2.0, "half": 0.5, "empty": ""}),
        KeyValue(key="array", value=array),
        KeyValue(key="pairs", value=pairs),
        KeyValue(key="bytes", value=AnyValue(bytes_value=b"\x00\xff")),
        KeyValue(key="nothing"),
    ]
    shown.update(gauge("a", NumberDataPoint(as_int=1, attributes=attributes)))
    assert shown.lines() == [
        r'a{array="[1,\"ü\"]",bool="false",bytes="AP8=",float="2",half="0.5",int="-1",pairs="{\"k\":true}"} 1'
    ]


def test_values_of_attributes_with_one_label_name_are_joined_in_the_order_of_attribute_names(shown: Shown) -> None:
    shown.update(gauge("a", number(1, {"gpu_id": "third", "gpu.id": "second", "gpu-id": "first"})))
    assert shown.lines() == ['a{gpu_id="first;second;third"} 1']


def test_an_attribute_with_the_name_of_a_fixed_label_becomes_exported() -> None:
    shown = Shown(const_labels={"cluster": "c1"})
    shown.update(
        gauge("a", number(1, {"job": "mine", "cluster": "own", "quantile": "kept"})),
        summary("b", {0.5: 1.0}, 1, 1.0, {"quantile": "mine"}, unit=""),
        resource={"service.name": "s"},
    )
    fixed = 'cluster="c1"'
    assert shown.lines() == [
        f'a{{{fixed},exported_cluster="own",exported_job="mine",job="s",quantile="kept"}} 1',
        f'b{{{fixed},exported_quantile="mine",job="s",quantile="0.5"}} 1.0',
        f'b_count{{{fixed},exported_quantile="mine",job="s"}} 1',
        f'b_sum{{{fixed},exported_quantile="mine",job="s"}} 1.0',
    ]


def test_scope_labels_are_on_by_default() -> None:
    page = Page()
    page.update(data(gauge("a", number(1)), scope="nvml", version="1.2"), 0)
    assert 'a{otel_scope_name="nvml",otel_scope_version="1.2"} 1' in page.render(TEXT, 0).decode()


def test_timestamps_are_milliseconds_and_in_openmetrics_seconds() -> None:
    shown = Shown(send_timestamps=True)
    shown.update(gauge("a", number(1, time=1_700_000_000_007_999_999)), summary("b", {}, 1, 2.0, time=0, unit=""))
    assert shown.lines() == ["a 1 1700000000007", "b_count 1", "b_sum 2.0"]
    assert shown.lines(OPENMETRICS)[0] == "a 1 1700000000.007"


def test_the_order_of_attributes_makes_no_new_series_and_the_stored_orders_are_limited(shown: Shown) -> None:
    names = [f"n{position}" for position in range(8)]
    for shift in range(8):
        attributes = dict.fromkeys(names[shift:] + names[:shift], "x")
        shown.update(gauge("a", number(shift, attributes, time=NOW + shift)))
    assert len(shown.lines()) == 1
    assert shown.lines()[0].endswith("} 7")
    [origin] = shown.page._origins.values()
    assert [len(stream.series) for stream in origin.streams.values()] == [4]


def test_points_with_exemplars_flags_or_no_attributes_update_their_series(shown: Shown) -> None:
    for value in range(3):
        plain = number(value, start_time_unix_nano=5, flags=2 if value == 1 else 0)
        traced = number(value, {"n": 1}, exemplars=[Exemplar(as_int=1)] if value else [])
        shown.update(total("a", plain, traced))
    assert shown.lines() == ["a_total 2", 'a_total{n="1"} 2']


def test_the_first_description_of_a_metric_becomes_its_help(shown: Shown) -> None:
    shown.update(gauge("a", number(1, {"n": 1}), unit="W"))
    assert shown.text().startswith("# HELP a_watts OpenTelemetry metric a in W.\n")
    for description in ("The power.", "Another text."):
        shown.update(gauge("a", number(1, {"n": 2}), unit="W", description=description), resource={"n": description})
    assert shown.text().count("# HELP a_watts The power.\n") == 1


def render(format_: Format) -> bytes:
    assert threading.current_thread() is not threading.main_thread()
    return b"# EOF\n" if format_.openmetrics else b"a 1\n" * 1000


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=metrics_app(render))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers={"accept-encoding": ""}
    ) as client:
        yield client


async def test_the_content_type_names_the_format(client: httpx.AsyncClient) -> None:
    text = await client.get("/metrics")
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert text.content == b"a 1\n" * 1000
    modern = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert modern.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert modern.content == b"# EOF\n"


async def test_a_large_page_is_compressed_if_the_client_accepts_gzip(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics", headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert int(response.headers["content-length"]) < 200
    assert response.content == b"a 1\n" * 1000
    small = await client.get("/metrics", headers={"accept-encoding": "gzip", "accept": "application/openmetrics-text"})
    assert "content-encoding" not in small.headers


async def test_head_has_the_length_and_no_body(client: httpx.AsyncClient) -> None:
    response = await client.head("/metrics")
    assert (response.status_code, response.headers["content-length"], response.content) == (200, "4000", b"")


async def test_health_answers_ok_and_other_requests_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).text == "ok"
    assert (await client.get("/nothing")).status_code == 404
    refused = await client.post("/metrics")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


HOST: Attributes = {"service.namespace": "ns", "service.name": "app", "service.instance.id": "i", "host.name": "h"}


def test_every_series_has_job_and_instance_and_target_info_has_the_other_attributes(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource=HOST)
    assert shown.lines() == [
        'target_info{host_name="h",instance="i",job="ns/app"} 1',
        'a{instance="i",job="ns/app"} 1',
    ]
    assert "# TYPE target_info gauge\n" in shown.text()
    assert '# TYPE target info\ntarget_info{host_name="h"' in shown.text(OPENMETRICS)


def test_target_info_has_the_labels_that_all_resources_of_the_target_share(shown: Shown) -> None:
    for gpu in ("0", "1"):
        shown.update(gauge("a", number(1, {"hw.id": gpu})), resource={**HOST, "hw.id": gpu, "only": gpu})
    assert shown.lines()[0] == 'target_info{host_name="h",instance="i",job="ns/app"} 1'


def test_a_resource_without_a_service_has_no_target_info(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"host.name": "h"})
    assert shown.lines() == ["a 1"]


def test_a_target_without_other_attributes_has_no_target_info(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"service.name": "app"})
    assert shown.lines() == ['a{job="app"} 1']


def test_target_info_is_removed_with_the_last_series(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource=HOST)
    assert len(shown.lines()) == 2
    shown.update(gauge("a", ended()), resource=HOST)
    assert shown.lines() == []


def test_a_resource_attribute_named_job_becomes_exported(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"service.name": "app", "job": "slurm-7"})
    assert shown.lines() == ['target_info{exported_job="slurm-7",job="app"} 1', 'a{job="app"} 1']


def test_target_labels_can_be_off() -> None:
    shown = Shown(target_labels=False)
    shown.update(gauge("a", number(1)), resource=HOST)
    info = 'host_name="h",service_instance_id="i",service_name="app",service_namespace="ns"'
    assert shown.lines() == [f"target_info{{{info}}} 1", "a 1"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ResourceLabels(included=("host.*",)), 'a{host_name="h",job="s",zone="z"} 1'),
        (ResourceLabels(("*",), excluded=("service.*",)), 'a{host_name="h",job="s",os_type="linux",zone="z"} 1'),
        (ResourceLabels(excluded=("service.*", "host.name")), 'a{job="s",os_type="linux",zone="z"} 1'),
        (ResourceLabels(), 'a{job="s",zone="z"} 1'),
    ],
)
def test_chosen_resource_attributes_are_on_every_series(choice: ResourceLabels, expected: str) -> None:
    shown = Shown(resource_constant_labels=choice)
    resource: Attributes = {"service.name": "s", "host.name": "h", "os.type": "linux"}
    shown.update(gauge("a", number(1, {"zone": "z"})), resource=resource)
    assert shown.lines()[-1] == expected


def test_an_attribute_of_a_point_overrides_the_resources() -> None:
    shown = Shown(resource_constant_labels=ResourceLabels(("hw.id",)))
    shown.update(gauge("a", number(1, {"hw.id": "point"})), resource={"hw.id": "resource"})
    assert shown.lines() == ['a{hw_id="point"} 1']


def test_a_summary_has_its_quantiles_in_ascending_order(shown: Shown) -> None:
    shown.update(summary("zernel.cuda.launch.latency", {1: 0.5, 0.99: 0.25, 0: 0.125}, 3, 0.875, {"process.pid": 7}))
    name, pid = "zernel_cuda_launch_latency_seconds", 'process_pid="7"'
    assert shown.lines() == [
        f'{name}{{{pid},quantile="0"}} 0.125',
        f'{name}{{{pid},quantile="0.99"}} 0.25',
        f'{name}{{{pid},quantile="1"}} 0.5',
        f"{name}_count{{{pid}}} 3",
        f"{name}_sum{{{pid}}} 0.875",
    ]
    assert f"# TYPE {name} summary\n" in shown.text()


def test_a_histogram_without_buckets_has_count_and_sum(shown: Shown) -> None:
    shown.update(histogram("a", [], [4], 2.0, unit=""))
    assert shown.lines() == ['a_bucket{le="+Inf"} 4', "a_count 4", "a_sum 2.0"]


@pytest.mark.parametrize(("bounds", "sum_"), [([-1.0, 1.0], 3.0), ([1.0, 2.0], -3.0), ([1.0, 2.0], None)])
@pytest.mark.parametrize("send_timestamps", [False, True])
def test_a_sum_that_may_decrease_is_omitted_in_openmetrics_with_its_count(
    bounds: list[float], sum_: float | None, send_timestamps: bool
) -> None:
    shown = Shown(send_timestamps=send_timestamps)
    shown.update(histogram("a", bounds, [1, 1, 1], sum_))
    bucket, count = (line.split()[:2] for line in shown.lines()[-2:])
    assert bucket == ['a_seconds_bucket{le="+Inf"}', "3"]
    assert count == ["a_seconds_count", "3"]
    assert shown.lines(OPENMETRICS)[-1].split()[:2] == bucket


def test_openmetrics_has_the_greatest_exemplar_of_each_bucket(shown: Shown) -> None:
    values = [Exemplar(as_double=value, trace_id=bytes([round(value * 10)] * 16)) for value in (0.2, 0.4, 0.3)]
    values.append(Exemplar(as_int=7, time_unix_nano=NOW, filtered_attributes=key_values({"step": 3})))
    shown.update(histogram("a", [0.5, 1.0], [3, 0, 1], exemplars=tuple(values), unit=""))
    assert shown.lines(OPENMETRICS) == [
        f'a_bucket{{le="0.5"}} 3 # {{trace_id="{"04" * 16}"}} 0.4',
        'a_bucket{le="1.0"} 3',
        'a_bucket{le="+Inf"} 4 # {step="3"} 7 1700000000.000',
    ]
    assert not any("#" in line for line in shown.lines())


def test_an_exponential_histogram_keeps_its_exemplars_when_its_scale_decreases(shown: Shown) -> None:
    slow = Exemplar(as_double=3.0, trace_id=b"\1" * 16)
    shown.update(exponential("a", 0, (0, [1, 1]), exemplars=(slow,)))
    shown.update(exponential("a", -1, (0, [2, 1]), time=NOW + 1))
    assert [line for line in shown.lines(OPENMETRICS) if "trace_id" in line] == [
        f'a_seconds_bucket{{le="3.363585661014858"}} 1 # {{trace_id="{"01" * 16}"}} 3.0'
    ]


def test_an_exemplar_with_too_long_labels_keeps_only_its_ids(shown: Shown) -> None:
    exemplar = Exemplar(as_int=1, span_id=b"12345678", filtered_attributes=key_values({"long": "x" * 128}))
    shown.update(total("a", number(1, exemplars=[exemplar])))
    assert shown.lines(OPENMETRICS) == ['a_total 1 # {span_id="3132333435363738"} 1']
