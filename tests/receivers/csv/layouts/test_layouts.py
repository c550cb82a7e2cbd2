"""The names, units, attributes and resources that columns become.

Units in the cells and the header of nvidia-smi's CSV, and headers whose rows cannot be read fully.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import points
from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.gpu_names.dcgm import FIELDS
from otel_zernel_libraries.gpu_names.newer_dcgm import MEASURES, RENAMED_FIELDS
from otel_zernel_receivers.csv.layouts.dcgm import parse_labels
from tests.receivers.csv.running import Receive, attributes
from tests.receivers.csv.test_headers import DAY, by_metric

REAL = Path(__file__).parents[5] / "shared/data/dcgm_metrics_20250718_134233.csv"
DCGM = "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw\n"
TIME = 1_752_871_354 * 10**9


def row(metric: str, value: object, labels: str = "", container: str = "") -> str:
    quoted = labels.replace('"', '""')
    return f'1752871354,{metric},3,nvidia3,GPU-a,H100,node-1,{container},,,{value},"{quoted}"\n'


@pytest.mark.skipif(not REAL.exists(), reason="needs the recorded DCGM file, which is not in the repository")
async def test_every_row_of_a_recorded_dcgm_file_is_converted(receive: Receive) -> None:
    run = await receive(files=[str(REAL)])
    resources = [
        attributes(resource_metric.resource)
        for batch in run.downstream.batches
        for resource_metric in batch.metrics.resource_metrics
    ]
    assert run.downstream.point_count == 2470
    assert run.dropped == {}
    assert len({resource["hw.id"] for resource in resources}) == len(resources) == 247
    assert len({resource["host.name"] for resource in resources}) == 31
    assert Counter(name for name, _, _ in run.points) == {
        "hw.gpu.utilization": 741,
        "zernel.gpu.clock": 494,
        "hw.gpu.memory.usage": 247,
        "zernel.gpu.memory.free": 247,
        "zernel.gpu.memory.bandwidth.utilization": 247,
        "hw.temperature": 247,
        "hw.power": 247,
    }
    assert all(0 <= value <= 1 for name, _, value in run.points if name == "hw.gpu.utilization")


@pytest.mark.parametrize(
    ("field", "value", "name", "unit", "expected"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", 57, "hw.gpu.utilization", "1", 0.57),
        ("DCGM_FI_DEV_FB_USED", 56357, "hw.gpu.memory.usage", "By", 56357 * 2**20),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1234567, "hw.energy", "J", 1234.567),
        ("DCGM_FI_DEV_SM_CLOCK", 1980, "zernel.gpu.clock", "Hz", 1.98e9),
        ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 12, "zernel.gpu.pcie.throughput", "By/s", 12000),
        ("DCGM_FI_PROF_SM_OCCUPANCY", 0.25, "zernel.gpu.sm.occupancy", "1", 0.25),
        ("zernel.cuda.launch.latency", 6.5e-6, "zernel.cuda.launch.latency", "s", 6.5e-6),
        ("DCGM_FI_SOMETHING_NEW", 42.5, "DCGM_FI_SOMETHING_NEW", "", 42.5),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 61, "hw.temperature", "Cel", 61),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", 698.2, "hw.power", "W", 698.2),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.57, "hw.gpu.utilization", "1", 0.57),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 1, "hw.gpu.utilization", "1", 1),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 57, "hw.gpu.utilization", "1", 0.57),  # DCGM 4.6: per cent by this name
        ("DCGM_FI_DEV_FAN_SPEED_RATIO", 1.05, "hw.fan.speed_ratio", "1", 1.05),
        ("DCGM_FI_DEV_FB_USED_BYTES", 59094597632, "hw.gpu.memory.usage", "By", 59094597632),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1234, "hw.energy", "J", 1234),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.98e9, "zernel.gpu.clock", "Hz", 1.98e9),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", 2, "zernel.gpu.nvlink.throughput", "By/s", 2_048_000),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", 2e9, "zernel.gpu.nvlink.throughput", "By/s", 2e9),
        ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", 2.5, "zernel.gpu.violation.time", "s", 2.5),
        ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 0.25, "zernel.gpu.engine.active", "1", 0.25),
    ],
)
async def test_values_have_opentelemetry_names_and_units(
    receive: Receive, field: str, value: float, name: str, unit: str, expected: float
) -> None:
    run = await receive(DCGM + row(field, value))
    metric = run.downstream.batches[0].metrics.resource_metrics[0].scope_metrics[0].metrics[0]
    assert (metric.name, metric.unit) == (name, unit)
    assert run.points == [(name, TIME, expected)]


def test_no_two_dcgm_fields_have_the_same_series() -> None:
    series = [(one.descriptor, tuple(one.attributes.items())) for one in FIELDS.values()]
    assert len(set(series)) == len(series)


def test_a_metric_has_one_unit_and_type() -> None:
    kinds: dict[str, Descriptor] = {}
    for one in MEASURES.values():
        assert kinds.setdefault(one.descriptor.name, one.descriptor) == one.descriptor


async def test_the_resource_identifies_the_gpu_and_the_point_has_the_other_labels(receive: Receive) -> None:
    labels = (
        'DCGM_FI_DRIVER_VERSION="535",Hostname="node-1",UUID="GPU-a",__name__="x",device="nvidia3",gpu="3",'
        'instance="node-1:9400",job="dcgm",modelName="H100",GPU_I_ID="7",pod="trainer-0"'
    )
    run = await receive(DCGM + row("DCGM_FI_DEV_GPU_TEMP", 61, labels, container="train"))
    (of_gpu,) = run.downstream.batches[0].metrics.resource_metrics
    assert of_gpu.scope_metrics[0].scope.name == "otel_zernel_receivers.csv"
    assert attributes(of_gpu.resource) == {
        "service.name": "dcgm",
        "service.instance.id": "node-1:9400",
        "host.name": "node-1",
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": "GPU-a",
        "hw.model": "H100",
        "hw.driver_version": "535",
        "zernel.gpu.index": 3,
        "zernel.gpu.device": "nvidia3",
        "k8s.container.name": "train",
        "k8s.pod.name": "trainer-0",
    }
    (point,) = points(of_gpu.scope_metrics[0].metrics[0])
    assert attributes(point) == {"hw.id": "GPU-a", "GPU_I_ID": "7", "hw.sensor_location": "gpu"}


async def test_a_value_above_1_proves_that_a_series_is_in_per_cent_from_then_on(receive: Receive) -> None:
    name = "DCGM_FI_DEV_GPU_UTIL_RATIO"
    run = await receive(DCGM + row(name, 50) + row(name, 1) + row(name, 1), batch_size=1)
    assert [value for _, _, value in run.points] == [0.5, 0.01, 0.01]


async def test_the_newer_names_of_columns_and_labels_make_the_same_resource_and_points(receive: Receive) -> None:
    older = 'DCGM_FI_DRIVER_VERSION="580",Hostname="node-1",UUID="GPU-a",device="nvidia3",gpu="3",modelName="H100"'
    newer = older.replace("Hostname", "hostname").replace("_FI_DRIVER", "_FI_SYSTEM_DRIVER")
    first = await receive(DCGM + row("DCGM_FI_DEV_GPU_TEMP", 61, older))
    second = await receive(DCGM.replace("Hostname", "hostname") + row("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 61, newer))
    assert second.downstream.batches[0].metrics == first.downstream.batches[0].metrics


async def test_a_file_needs_no_column_that_its_labels_repeat(receive: Receive) -> None:
    labels = 'hostname="node-1",device="nvidia3",gpu="3",modelName="H100"'.replace('"', '""')
    header = "value,metric_name,extra,timestamp,uuid,labels_raw\n"
    run = await receive(f'{header}61,DCGM_FI_DEV_GPU_TEMP,?,1752871354,GPU-a,"{labels}"\n')
    (of_gpu,) = run.downstream.batches[0].metrics.resource_metrics
    assert attributes(of_gpu.resource) == {
        "host.name": "node-1",
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": "GPU-a",
        "hw.model": "H100",
        "zernel.gpu.index": 3,
        "zernel.gpu.device": "nvidia3",
    }


@pytest.mark.skipif(not REAL.exists(), reason="needs the recorded DCGM file, which is not in the repository")
async def test_a_recorded_file_with_the_newer_names_gives_the_same_points(receive: Receive) -> None:
    recorded = REAL.read_text()
    newer = {older: newer for newer, older in RENAMED_FIELDS.items()} | {
        "Hostname": "hostname",
        "DCGM_FI_DRIVER_VERSION": "DCGM_FI_SYSTEM_DRIVER_VERSION",
    }
    renamed = re.sub(r"\b(?:DCGM_FI_\w+|Hostname)\b", lambda found: newer.get(found[0], found[0]), recorded)
    first, second = await receive(recorded), await receive(renamed)
    assert "DCGM_FI_DEV_GPU_TEMP_CELSIUS" in renamed
    assert [batch.metrics for batch in second.downstream.batches] == [
        batch.metrics for batch in first.downstream.batches
    ]


async def test_mig_instances_of_a_gpu_have_series_of_their_own(receive: Receive) -> None:
    header = "timestamp,metric_name,gpu_id,uuid,Hostname,GPU_I_PROFILE,GPU_I_ID,value\n"
    before = "1752871354,DCGM_FI_PROF_GR_ENGINE_ACTIVE,0,GPU-a,node-1"
    run = await receive(f"{header}{before},1g.10gb,7,0.25\n{before},2g.20gb,8,0.5\n{before},,,0.75\n")
    (of_gpu,) = run.downstream.batches[0].metrics.resource_metrics
    series = [attributes(point) for point in points(of_gpu.scope_metrics[0].metrics[0])]
    gpu = {"hw.id": "GPU-a", "zernel.gpu.engine": "graphics"}
    assert series == [
        {**gpu, "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"},
        {**gpu, "GPU_I_ID": "8", "GPU_I_PROFILE": "2g.20gb"},
        gpu,
    ]


async def test_malformed_labels_cost_only_the_labels(receive: Receive) -> None:
    run = await receive(DCGM + row("DCGM_FI_DEV_GPU_TEMP", 61, 'job="x'))
    (of_gpu,) = run.downstream.batches[0].metrics.resource_metrics
    assert attributes(of_gpu.resource)["host.name"] == "node-1"
    assert run.points == [("hw.temperature", TIME, 61)]
    assert run.dropped == {}


async def test_the_wide_layout_makes_a_point_per_filled_cell(receive: Receive) -> None:
    header = "timestamp,gpu_id,hostname,gpu_utilization,memory_utilization,memory_used_mb,temperature,power_draw\n"
    run = await receive(header + "1752871354,0,node-1,50,25,1024,,99.5\n1752871355,0,node-1,x,,,,\n", layout="wide")
    assert run.points == [
        ("hw.gpu.utilization", TIME, 0.5),
        ("zernel.gpu.memory.bandwidth.utilization", TIME, 0.25),
        ("hw.gpu.memory.usage", TIME, 2**30),
        ("hw.power", TIME, 99.5),
    ]
    assert run.dropped == {"not a number": 1}
    resource = attributes(run.downstream.batches[0].metrics.resource_metrics[0].resource)
    assert (resource["hw.id"], resource["host.name"], resource["zernel.gpu.index"]) == ("0", "node-1", 0)


async def test_a_custom_wide_layout(receive: Receive) -> None:
    layout = {
        "timestamp": "time",
        "resource": {"host.name": "node"},
        "attributes": {"cpu": "core"},
        "metrics": {"busy": {"name": "cpu.busy", "unit": "1", "scale": 0.01}, "joules": {"unit": "J", "type": "sum"}},
    }
    run = await receive("time;node;core;busy;joules\n1752871354;n1;;7;3\n", layout=layout, delimiter=";")
    assert run.points == [("cpu.busy", TIME, 0.07), ("joules", TIME, 3)]
    (resource,) = run.downstream.batches[0].metrics.resource_metrics
    busy, joules = resource.scope_metrics[0].metrics
    assert attributes(resource.resource) == {"host.name": "n1"}
    assert attributes(points(busy)[0]) == {}
    assert (busy.unit, joules.unit, joules.sum.is_monotonic) == ("1", "J", True)


NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(st.dictionaries(NAMES, st.text()))
def test_any_label_value_is_parsed_back(labels: dict[str, str]) -> None:
    assert parse_labels(",".join(f'{name}="{escape(value)}"' for name, value in labels.items())) == labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", {}), ('{a="1"}', {"a": "1"}), ('a="1", b="2",', {"a": "1", "b": "2"}), ('"a.b"="1"', {"a.b": "1"})],
)
def test_all_spellings_of_the_exposition_format_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_labels(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1", 'a="1', 'a="1" b="2"', '=""', 'a="\\'])
def test_malformed_labels_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not Prometheus labels"):
        parse_labels(text)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("pcie.link.gen.current", "4 x"),
        ("temperature.gpu", "61 F"),
        ("power.draw [W]", "61 J"),
        ("fan.speed [%]", "3 W"),
    ],
)
async def test_a_cell_with_an_unknown_unit_is_no_value(receive: Receive, column: str, cell: str) -> None:
    run = await receive(f"timestamp, index, {column}, utilization.gpu [%]\n{DAY}15:00:00, 0, {cell}, 98 %\n")
    assert run.points == []
    assert run.dropped == {"not a number": 1}


@pytest.mark.parametrize(("unit", "cell"), [("kW", "0.3"), ("mW", "300000"), ("kW", "300 W"), ("W", "0.3 kW")])
async def test_power_is_converted_from_any_of_its_units(receive: Receive, unit: str, cell: str) -> None:
    run = await receive(f"timestamp, index, power.draw [{unit}]\n{DAY}15:00:00, 0, {cell}\n")
    assert by_metric(run)["power"] == pytest.approx([300.0])


@pytest.mark.parametrize("unit", ["BTU/h", "MiB"])
@pytest.mark.parametrize("count", [1, 3000], ids=["plain parser", "fast parser"])
async def test_a_column_with_an_unknown_unit_is_left_out_and_named_once(
    receive: Receive, caplog: pytest.LogCaptureFixture, unit: str, count: int
) -> None:
    rows = f"{DAY}15:00:00, 0, 98, 1024\n" * count
    run = await receive(f"timestamp, index, utilization.gpu [%], power.draw [{unit}]\n{rows}", batch_size=1000)
    assert by_metric(run) == {"utilization": [0.98] * count}
    assert run.dropped == {}
    assert [text.partition(": ")[2] for text in caplog.messages] == [
        f"no metric has the unit of 'power.draw [{unit}]'; correct it"
    ]


@pytest.mark.parametrize(("column", "count"), [("name", 1), ("index", 0), ("uuid", 0), ("gpu_bus_id", 0)])
async def test_a_header_that_does_not_tell_gpus_apart_is_logged_once(
    receive: Receive, caplog: pytest.LogCaptureFixture, column: str, count: int
) -> None:
    rows = f"{DAY}15:00:00.123, A100, 10 %\n{DAY}15:00:00.126, A100, 90 %\n"
    await receive(f"timestamp, {column}, utilization.gpu [%]\n{rows}", batch_size=1)
    message = (
        "the header has none of uuid, index, pci.bus_id, serial: add a column that tells GPUs apart, such as their "
    )
    assert [text.partition(": ")[2] for text in caplog.messages] == [message + "uuid or index"] * count
