"""The comparison of known loads behind `make gpu-check`, with answers like those of an H100."""

from dataclasses import replace

import pytest

from tests.gpu.load_values import LoadResult, Row, expected_of_dmon, expected_of_load, table

ENGINE = "zernel.gpu.engine.active"
DMON = """\
# gpu    pwr  gtemp      gract     smutil     mmaact       dram      pcirx
# Idx      W      C      GPM:%      GPM:%      GPM:%      GPM:%  GPM:MiB/s
    0    450     56          -          -          -          -          -
    0    696     60         98         94         91         24         13
"""
PRODUCTS = LoadResult(
    load="bf16 products",
    did={"amount": 2.4e15, "seconds": 3.6, "multiprocessors": 132, "capability": [9, 0]},
    before={"hw.energy": 1000.0, "zernel.gpu.clock sm": 1.44e9},
    after={
        "hw.energy": 2739.0,
        "zernel.gpu.clock sm": 1.44e9,
        "zernel.gpu.power.distribution sum": 691.4 * 119,
        "zernel.gpu.power.distribution count": 119.0,
        "zernel.gpu.process.utilization sm 569 python3": 0.98,
        f"{ENGINE} graphics": 0.984,
        f"{ENGINE} sm": 0.949,
        f"{ENGINE} tensor": 0.92,
        f"{ENGINE} dram": 0.25,
        "zernel.gpu.pcie.throughput profiler receive": 14.07e6,
    },
    seconds=2.5,
    pid=569,
    bus_width=5120,
)


def differing(result: LoadResult) -> list[str]:
    """The names of the values that differ."""
    rows: list[Row] = [*expected_of_load(result), *expected_of_dmon(result, DMON)]
    return [row.name for row in rows if not row.agree]


def test_the_values_of_a_known_load_agree() -> None:
    assert differing(PRODUCTS) == []
    assert len([*expected_of_load(PRODUCTS), *expected_of_dmon(PRODUCTS, DMON)]) == 9


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        (f"{ENGINE} tensor", 0.5, [f"{ENGINE} tensor", f"{ENGINE} tensor (dmon)"]),
        (f"{ENGINE} dram", 0.9, [f"{ENGINE} dram (dmon)"]),
        ("hw.energy", 2000.0, ["hw.energy per second, W"]),
        ("zernel.gpu.process.utilization sm 569 python3", 0.1, ["zernel.gpu.process.utilization sm of the process"]),
        ("zernel.gpu.pcie.throughput profiler receive", 14.0, ["zernel.gpu.pcie.throughput profiler receive (dmon)"]),
    ],
)
def test_a_wrong_value_is_found(name: str, value: float, found: list[str]) -> None:
    assert differing(replace(PRODUCTS, after={**PRODUCTS.after, name: value})) == found


def test_a_missing_series_is_found() -> None:
    after = {name: value for name, value in PRODUCTS.after.items() if name != f"{ENGINE} sm"}
    assert differing(replace(PRODUCTS, after=after)) == [f"{ENGINE} sm (dmon)"]
    (line, *_) = table(expected_of_dmon(replace(PRODUCTS, after=after), DMON))
    assert line == f"DIFFERS bf16 products: {ENGINE} sm (dmon): 0.94 | -"


def test_a_copy_within_the_gpu_uses_memory_for_reads_and_writes() -> None:
    copied = {"amount": 5.4288e12, "seconds": 3.608, "multiprocessors": 132, "capability": [9, 0]}
    after = {**PRODUCTS.after, "zernel.gpu.clock memory": 2.619e9, f"{ENGINE} dram": 0.897}
    result = replace(PRODUCTS, load="copies in the GPU", did=copied, after=after)
    (dram,) = [row for row in expected_of_load(result) if row.name == f"{ENGINE} dram"]
    assert dram.agree
    assert dram.expected == pytest.approx(0.8977, abs=1e-4)
