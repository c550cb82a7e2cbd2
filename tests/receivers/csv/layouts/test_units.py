"""Units in the cells and the header of nvidia-smi's CSV, and headers whose rows cannot be read fully."""

import pytest

from tests.receivers.csv.running import Receive
from tests.receivers.csv.test_headers import DAY, by_metric


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
