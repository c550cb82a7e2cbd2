"""The meaning of metric names that are not DCGM fields.

DCGM's constants for "no value" make no point, wherever its fields are read. Measurements of that size do.
"""

import pytest

from otel_zernel_libraries.gpu_names.dcgm import FIELDS, implied_descriptor
from otel_zernel_libraries.gpu_names.dcgm_blanks import is_blank
from otel_zernel_libraries.gpu_names.newer_dcgm import MEASURES, NEWER_FIELDS
from tests.receivers.csv.conftest import receive  # noqa: F401  # a fixture
from tests.receivers.csv.running import Receive
from tests.receivers.prometheus.parts import TextTarget
from tests.receivers.prometheus.serving import ended, metrics_of


@pytest.mark.parametrize(
    "name",
    [
        "zernel.cuda.launch.latency",
        "zernel.cuda.sync.wait",
        "zernel.cuda.copy.latency",
        "zernel.nccl.collective.duration",
        "zernel.nccl.collective.enqueue.duration",
        "zernel.dataloader.wait",
        "zernel.distributed.sync.wait",
        "zernel.step.duration",
    ],
)
def test_the_name_of_a_duration_implies_a_gauge_in_seconds(name: str) -> None:
    implied = implied_descriptor(name)
    assert implied is not None
    assert implied.identity == (name, "s", "gauge")


@pytest.mark.parametrize(
    "name",
    ["zernel.gpu.encoder.latency", "zernel.step.rate", "my.step.duration", "zernel.duration", "DCGM_FI_DEV_GPU_TEMP"],
)
def test_other_names_imply_nothing(name: str) -> None:
    assert implied_descriptor(name) is None


def test_no_dcgm_field_is_the_name_of_a_duration() -> None:
    assert not any(map(implied_descriptor, MEASURES))


def test_a_newer_name_replaces_no_older_one() -> None:
    assert not FIELDS.keys() & NEWER_FIELDS.keys()


def test_newer_fields_named_by_their_unit_are_not_scaled() -> None:
    units = ("_BYTES", "_HERTZ", "_RATIO", "_CELSIUS", "_WATTS", "_JOULES_TOTAL", "_SECONDS_TOTAL", "_PER_SECOND")
    assert {one.scale for name, one in NEWER_FIELDS.items() if name.endswith(units)} == {1.0}


def test_every_metric_of_a_field_has_a_description() -> None:
    measures = [*FIELDS.values(), *MEASURES.values()]
    assert {
        measure.descriptor.name for measure in measures if not measure.descriptor.description.endswith(".")
    } == set()
    launch = implied_descriptor("zernel.cuda.launch.latency")
    assert launch is not None
    assert launch.description.startswith("Time to put work into")


INT32, INT64, FP64 = 0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 2.0**47
BLANKS = [str(blank + reason) for blank in (INT32, INT64) for reason in range(4)]
BLANKS += [f"{FP64 + reason:.6f}" for reason in range(4)] + [
    "9223372036854776000",
    "9.22337203685478e+18",
    "4294967295",
]
SHOWN = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_SM_CLOCK")
LARGE = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 9_876_543_210,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 2_147_483_700,
    "DCGM_FI_DEV_FB_USED_BYTES": 80 * 2**30,
    "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ": 3_201_000_000,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 0,
    "DCGM_FI_DEV_UNKNOWN_TO_US": 5e15,
}


@pytest.mark.parametrize("field", SHOWN)
@pytest.mark.parametrize("blank", BLANKS)
def test_a_blank_is_no_measurement(field: str, blank: str) -> None:
    assert is_blank(field, float(blank))
    page = f'# TYPE {field} gauge\n{field}{{gpu="0"}} {blank}\n{field}{{gpu="1"}} 1\n'
    (metric,) = [
        metric
        for metric in metrics_of(TextTarget(receiver={"presets": ["dcgm-exporter"]}).scrape(page)).values()
        if metric.name.startswith(("hw.", "zernel."))
    ]
    assert len(metric.gauge.data_points or metric.sum.data_points) == 1


@pytest.mark.parametrize(("field", "value"), LARGE.items())
def test_a_large_measurement_is_one(field: str, value: float) -> None:
    assert not is_blank(field, value)
    assert is_blank(field, float(INT64))


def test_other_metrics_have_no_blanks() -> None:
    assert not is_blank("node_memory_bytes", float(INT64))


def test_a_series_ends_while_its_value_is_blank() -> None:
    target = TextTarget(receiver={"presets": ["dcgm-exporter"]})
    page = '# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} '
    assert metrics_of(target.scrape(page + "61\n"))["hw.temperature"].gauge.data_points[0].as_double == 61
    batch = target.scrape(page + f"{INT64}\n")
    assert "hw.temperature" in ended(batch)
    assert metrics_of(target.scrape(page + "62\n"))["hw.temperature"].gauge.data_points[0].as_double == 62


def test_a_page_that_describes_a_field_without_a_sample_is_valid() -> None:
    target = TextTarget(receiver={"presets": ["dcgm-exporter"]})
    page = "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
    assert "up" in metrics_of(target.scrape(page))
    assert "hw.temperature" in metrics_of(target.scrape(page + 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61\n'))


async def test_csv_files_have_blanks_too(receive: Receive) -> None:  # noqa: F811
    head, temp = "timestamp,metric_name,uuid,value\n", "1752871354,DCGM_FI_DEV_GPU_TEMP,GPU-{n},{v}\n"
    rows = "".join(temp.format(n=n, v=blank) for n, blank in enumerate(BLANKS))
    large = "".join(f"1752871354,{field},GPU-1,{value:f}\n" for field, value in LARGE.items())
    run = await receive(head + rows + temp.format(n=99, v=61) + large)
    assert [value for name, _, value in run.points if name == "hw.temperature"] == [61.0]
    assert len(run.points) == 1 + len(LARGE)
    assert run.dropped == {}
    run = await receive(f"timestamp,gpu_id,hostname,temperature,power_draw\n1752871354,0,a,{INT32},300\n")
    assert [name for name, _, _ in run.points] == ["hw.power"]


async def test_a_mapping_of_columns_with_the_names_of_fields_has_blanks_too(receive: Receive) -> None:  # noqa: F811
    names = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "temperature")
    layout = {"timestamp": "t", "attributes": {"gpu": "gpu"}, "metrics": {name: {"scale": 0.5} for name in names}}
    rows = "".join(f"{1752871354 + n},0,{blank},2147483700,{blank}\n" for n, blank in enumerate(BLANKS))
    run = await receive(f"t,gpu,{','.join(names)}\n{rows}", layout=layout)
    assert {name for name, _, _ in run.points} == set(names[1:])
    assert len(run.points) == 2 * len(BLANKS)
