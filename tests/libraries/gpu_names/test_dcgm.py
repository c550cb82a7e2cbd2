"""The meaning of metric names that are not DCGM fields."""

import pytest

from otel_zernel_libraries.gpu_names.dcgm import FIELDS, implied_descriptor
from otel_zernel_libraries.gpu_names.newer_dcgm import MEASURES, NEWER_FIELDS


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
