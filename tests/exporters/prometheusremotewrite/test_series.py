"""Every kind of metric becomes the series that the specifications of remote write and of OpenTelemetry demand."""

import math
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, MetricsData

from otel_zernel.batch import Batch
from tests.exporters.prometheusremotewrite.decoding import Decoded, is_stale, name_of
from tests.exporters.prometheusremotewrite.exporting import V1, exporter
from tests.exporters.prometheusremotewrite.receiver import WriteReceiver
from tests.otlp import (
    DELTA,
    NOW,
    SECOND,
    data,
    ended,
    exponential,
    gauge,
    histogram,
    node,
    number,
    summary,
    total,
)

NOW_MS = NOW // 1_000_000
VERSIONS = pytest.mark.parametrize("config", [{}, V1], ids=["2.0", "1.0"])
SERVICE = {"service.name": "llm", "service.instance.id": "node-1", "host.name": "node-1", "hw.vendor": "NVIDIA"}
TRACE: dict[str, Any] = {"trace_id": bytes(range(16)), "span_id": bytes(range(8))}


async def written(*messages: MetricsData, **config: object) -> WriteReceiver:
    """The receiver after it took these batches. No point is lost."""
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url, **config) as (one, dropped):
        for message in messages:
            await one.export(Batch(message))
    assert dropped.counts == {}
    return receiver


def values(receiver: WriteReceiver, name: str, label: str = "") -> dict[str, list[float]]:
    """The values of the series with a name, by the value of a label."""
    return {
        dict(labels).get(label, ""): [value for _, value in samples] for labels, samples in receiver.named(name).items()
    }


def newest(receiver: WriteReceiver) -> Decoded:
    return receiver.requests[-1]


@VERSIONS
async def test_attributes_of_the_service_may_be_left_out_of_the_labels(config: dict[str, str]) -> None:
    conversion = {"enabled": True, "exclude_service_attributes": True}
    names = []
    for options in ({"enabled": True}, conversion):
        receiver = await written(node(), resource_to_telemetry_conversion=options, **config)
        names.append(
            {label for labels in receiver.samples if "target_info" not in name_of(labels) for label, _ in labels}
        )
    assert names[0] - names[1] == {label for label in names[0] if label.startswith("service_")}
    assert "service_name" in names[0]
    assert "job" in names[1]


@VERSIONS
async def test_a_node_arrives_with_all_its_values(config: dict[str, str]) -> None:
    receiver = await written(node(), resource_to_telemetry_conversion={"enabled": True}, **config)
    assert values(receiver, "hw_gpu_utilization_ratio", "hw_id") == {"GPU-0": [0.25], "GPU-1": [0.25]}
    assert values(receiver, "hw_energy_joules_total", "hw_id")["GPU-1"] == [1234.5]
    assert values(receiver, "hw_power_watts", "hw_id")["GPU-0"] == [math.inf]
    assert math.isnan(values(receiver, "hw_temperature_celsius", "hw_id")["GPU-0"][0])
    assert values(receiver, "zernel_cuda_launch_latency_seconds", "quantile")["0.99"] == [2e-5]
    assert values(receiver, "zernel_cuda_launch_latency_seconds_count") == {"": [1000]}
    assert values(receiver, "zernel_dataloader_wait_seconds_bucket", "le") == {
        "0.1": [3],
        "0.5": [5],
        "1.0": [6],
        "+Inf": [7],
    }
    assert values(receiver, "zernel_dataloader_wait_seconds_sum") == {"": [4.5]}
    assert all(sample[0] == NOW_MS for samples in receiver.samples.values() for sample in samples)
    [step] = [one for labels, one in receiver.histograms.items() if name_of(labels) == "zernel_step_duration_seconds"]
    assert (step[0].count_int, step[0].sum, step[0].schema) == (9, 7.25, 3)
    assert step[0].zero_count_int == 1


@VERSIONS
async def test_resources_become_labels_and_target_info(config: dict[str, str]) -> None:
    receiver = await written(data(gauge("x", number(1.0)), resource=SERVICE, scope="s", version="1"), **config)
    [labels] = receiver.named("x")
    assert dict(labels) == {
        "job": "llm",
        "instance": "node-1",
        "host_name": "node-1",
        "otel_scope_name": "s",
        "otel_scope_version": "1",
    }
    [info] = receiver.named("target_info")
    assert dict(info) == {"job": "llm", "instance": "node-1", "host_name": "node-1", "hw_vendor": "NVIDIA"}


async def test_options_change_names_and_labels() -> None:
    config = {
        "namespace": "lab",
        "external_labels": {"cluster": "a"},
        "add_metric_suffixes": False,
        "disable_scope_info": True,
        "target_info": {"enabled": False},
        "resource_constant_labels": {"included": []},
    }
    receiver = await written(data(total("y", number(1.0), unit="s"), resource=SERVICE, scope="s"), **config)
    [labels] = receiver.samples
    assert dict(labels) == {"__name__": "lab_y", "cluster": "a", "job": "llm", "instance": "node-1"}


async def test_a_target_whose_attributes_change_ends_its_former_target_info() -> None:
    first = data(gauge("x", number(1.0)), resource={**SERVICE, "os": "a"})
    second = data(gauge("x", number(1.0, time=NOW + SECOND)), resource={**SERVICE, "os": "b"})
    receiver = await written(first, second)
    infos = receiver.named("target_info")
    (ended_info,) = [samples for labels, samples in infos.items() if dict(labels).get("os") == "a"]
    assert [is_stale(value) for _, value in ended_info] == [False, True]


async def test_requests_of_2_0_have_types_help_units_and_start_times() -> None:
    start = NOW - 60 * SECOND
    counter = total("steps", number(3, start_time_unix_nano=start), unit="s", description="Steps.")
    receiver = await written(data(counter, gauge("temp", number(1.0), unit="Cel")))
    found = newest(receiver)
    assert found.metadata["steps_seconds_total"] == (1, "Steps.", "seconds")
    assert found.metadata["temp_celsius"] == (2, "OpenTelemetry metric temp in Cel.", "celsius")
    starts = {name_of(labels): start for labels, start in found.starts.items()}
    assert starts == {"steps_seconds_total": [start // 1_000_000], "temp_celsius": [0]}


async def test_requests_of_1_0_have_metadata_if_they_are_wanted() -> None:
    message = data(histogram("h", [1.0], [1, 2], 2.0), gauge("g", number(1.0), description="G."))
    receiver = await written(message, send_metadata=True, **V1)
    assert newest(receiver).metadata == {
        "h_seconds": (3, "OpenTelemetry metric h in s.", "seconds"),
        "g": (2, "G.", ""),
    }
    assert newest(await written(message, **V1)).metadata == {}


@VERSIONS
async def test_exemplars_of_counters_and_buckets_have_traces_and_times(config: dict[str, str]) -> None:
    exemplar = Exemplar(as_double=0.2, time_unix_nano=NOW, **TRACE)
    untimed = Exemplar(as_int=1, **TRACE)
    message = data(
        histogram("h", [0.1, 0.5], [1, 1, 1], 2.0, exemplars=(exemplar,)), total("c", number(1, exemplars=[untimed]))
    )
    found = newest(await written(message, **config))
    shown = {(name_of(labels), dict(labels).get("le")): exemplars for labels, exemplars in found.exemplars.items()}
    labels = (("span_id", TRACE["span_id"].hex()), ("trace_id", TRACE["trace_id"].hex()))
    assert shown == {("h_seconds_bucket", "0.5"): [(NOW_MS, 0.2, labels)], ("c_total", None): [(NOW_MS, 1.0, labels)]}


@VERSIONS
async def test_a_staleness_point_ends_every_series_of_its_point(config: dict[str, str]) -> None:
    messages = [
        data(
            gauge("g", number(1.0)),
            histogram("h", [1.0], [1, 2], 2.0),
            summary("q", {0.5: 1.0}, 1, 1.0),
            exponential("e", 1, (0, [1])),
        )
    ]
    later = data(
        gauge("g", ended(time=NOW + SECOND)),
        histogram("h", [1.0], [1, 2], 2.0, time=NOW + SECOND),
        summary("q", {0.5: 1.0}, 1, 1.0, time=NOW + SECOND),
        exponential("e", 1, (0, [1]), time=NOW + SECOND),
    )
    for metric in later.resource_metrics[0].scope_metrics[0].metrics[1:]:
        getattr(metric, metric.WhichOneof("data") or "").data_points[0].flags = 1
    receiver = await written(*messages, later, **config)
    assert len(receiver.samples) == 1 + 4 + 3
    for samples in receiver.samples.values():
        assert [is_stale(value) for _, value in samples] == [False, True]
    [natives] = receiver.histograms.values()
    assert [is_stale(native.sum) for native in natives] == [False, True]


async def test_a_bound_that_is_not_reported_any_more_ends() -> None:
    restarted = histogram("h", [2.0], [1, 2], 2.0, time=NOW + SECOND)
    restarted.histogram.data_points[0].start_time_unix_nano = NOW
    receiver = await written(data(histogram("h", [1.0], [1, 2], 2.0)), data(restarted))
    found = values(receiver, "h_seconds_bucket", "le")
    assert [is_stale(value) for value in found["1.0"]] == [False, True]
    assert found["+Inf"] == [3, 3]


async def test_a_sender_that_moves_its_bounds_gets_fixed_ones() -> None:
    moving = [data(histogram("h", [1.0 + 0.1 * i], [1, 2], 2.0, time=NOW + i * SECOND)) for i in range(5)]
    found = values(await written(*moving), "h_seconds_bucket", "le")
    assert len(found) <= 100
    assert found["+Inf"] == [3] * 5


async def test_deltas_become_totals() -> None:
    deltas = [
        data(
            total("d", number(5, time=NOW + i * SECOND, start_time_unix_nano=NOW + (i - 1) * SECOND), temporality=DELTA)
        )
        for i in range(3)
    ]
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url) as (one, _):
        for message in deltas:
            batch = Batch(message)
            assert one.prepares(batch)
            for prepared in one.prepare(batch, dropped=False):
                if prepared.point_count:
                    await one.export(prepared)
    assert values(receiver, "d_total") == {"": [5, 10, 15]}


async def test_exponential_histograms_are_merged_to_the_schemas_of_prometheus() -> None:
    message = data(
        exponential("fine", 12, (4096, [1] * 64), (0, [2]), zero_count=3, zero_threshold=1e-3, sum_=5.0),
        exponential("coarse", -6, (0, [4]), sum_=5.0),
    )
    receiver = await written(message)
    [fine] = [one for labels, one in receiver.histograms.items() if name_of(labels) == "fine_seconds"]
    assert fine[0].schema == 8
    assert fine[0].count_int == 69
    assert fine[0].positive_spans[0].offset == 257  # 4096 >> 4 is 256, and Prometheus counts one more
    assert fine[0].zero_threshold == 1e-3
    assert values(receiver, "coarse_seconds_bucket", "le")["+Inf"] == [4]
    assert values(receiver, "coarse_seconds_sum") == {"": [5]}


async def test_a_restart_of_a_sender_is_a_reset_of_its_native_histograms() -> None:
    messages = [data(exponential("e", 1, (0, [1]), time=NOW + i * SECOND)) for i in range(3)]
    for message, start in zip(messages, (NOW - 2, NOW - 2, NOW + SECOND), strict=True):
        point = message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0]
        point.start_time_unix_nano = start
    [natives] = (await written(*messages)).histograms.values()
    assert [native.reset_hint for native in natives] == [0, 0, 1]
    assert [native.start_timestamp for native in natives] == [(NOW - 2) // 1_000_000] * 2 + [NOW_MS + 1000]


async def test_explicit_histograms_become_native_ones_with_custom_buckets() -> None:
    message = data(histogram("h", [0.1, 0.5, 2.0], [3, 0, 4, 1], 4.5))
    receiver = await written(message, convert_histograms_to_nhcb=True)
    [[native]] = receiver.histograms.values()
    assert (native.schema, list(native.custom_values)) == (-53, [0.1, 0.5, 2.0])
    assert (native.count_int, native.sum) == (8, 4.5)
    assert [(positive_span.offset, positive_span.length) for positive_span in native.positive_spans] == [(0, 4)]
    assert list(native.positive_deltas) == [3, -3, 4, -3]
    classic = await written(message, convert_histograms_to_nhcb=True, **V1)
    assert values(classic, "h_seconds_bucket", "le") == {"0.1": [3], "0.5": [3], "2.0": [7], "+Inf": [8]}


async def test_samples_of_one_time_and_series_are_one_and_the_others_are_counted() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(Batch(data(gauge("g", number(1.0), number(2.0)))))
    assert values(receiver, "g") == {"": [2.0]}
    assert dropped.counts == {"collision": 1}


async def test_samples_of_a_series_are_sorted_by_time() -> None:
    points = [number(float(i), time=NOW + i * SECOND) for i in (3, 1, 2)]
    assert values(await written(data(gauge("g", *points))), "g") == {"": [1.0, 2.0, 3.0]}


async def test_points_that_cannot_be_written_are_counted() -> None:
    receiver = WriteReceiver()
    unspecified = total("u", number(1.0), number(2.0))
    unspecified.sum.ClearField("aggregation_temporality")
    message = data(
        gauge("...", number(1.0)),
        unspecified,
        histogram("h", [2.0, 1.0], [1, 1, 1]),
        summary("s", {1.5: 1.0}, 1, 1.0),
        exponential("e", 21, (0, [1])),
    )
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(Batch(message))
    assert dropped.counts == {"bad_name": 1, "no_temporality": 2, "malformed": 3}
    assert receiver.requests == []
