"""Energy and idle time, divided among phases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.energy import EnergyHistory, GpuEnergy, GpuUsage, GpuUser

S = 1_000_000_000


def history(*periods: tuple[float, float, str]) -> EnergyHistory:
    made = EnergyHistory()
    for start, end, phase in periods:
        made.add_period(round(start * S), round(end * S), phase)
    return made


def gpu(name: str, *points: tuple[float, float]) -> GpuEnergy:
    made = GpuEnergy()
    for time, value in points:
        made.read(InputPoint(name, 0, round(time * S), value, "node", None, "0", False, Resource()))
    return made


HALF = (10.0, 10.5, "data_loading"), (10.5, 12.0, "gpu_compute")


def spent(one: GpuEnergy, *users: EnergyHistory, at_latest: int = 0) -> list[GpuUsage]:
    sums = [GpuUsage() for _ in users]
    one.share_out([GpuUser("0", *pair, DeviceTimes()) for pair in zip(users, sums, strict=True)], at_latest)
    return sums


@pytest.mark.parametrize(
    ("points", "loading", "computing"),
    [
        (gpu("hw.energy", (10, 1000), (11, 1300), (12, 1900)), 150, 750),
        (gpu("hw.power", (10, 100), (11, 300), (12, 300)), 100, 400),
    ],
    ids=["a counter", "power, which is integrated"],
)
def test_energy_is_divided_by_the_time_of_the_phases(points: GpuEnergy, loading: float, computing: float) -> None:
    (used,) = spent(points, history(*HALF))
    assert used == pytest.approx({"data_loading": loading, "gpu_compute": computing, "unknown": 0})


def test_power_is_ignored_beside_a_counter() -> None:
    one = gpu("hw.energy", (10, 0))
    for time in (10, 11):
        one.read(InputPoint("hw.power", 0, time * S, 500.0, "node", None, "0", False, Resource()))
    assert spent(one, history(*HALF))[0] == {}


class Readings(DeviceTimes):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[int, int, float]] = []

    def add_reading(self, start: int, end: int, idle_s: float) -> None:
        self.all.append((start, end, idle_s))


@pytest.mark.parametrize("users", [1, 2])
def test_idle_time_is_known_of_a_process_that_has_its_gpu_alone(users: int) -> None:
    devices = [Readings() for _ in range(users)]
    one = gpu("hw.gpu.utilization", (10, 0.5), (11, 0.25), (12, 1.0))
    one.share_out([GpuUser("0", history(*HALF), GpuUsage(), device) for device in devices], 0)
    known = [(10 * S, 11 * S, 0.75), (11 * S, 12 * S, 0.0)]
    assert [device.all for device in devices] == ([known] if users == 1 else [[], []])


def test_processes_on_one_gpu_share_equally() -> None:
    one = gpu("hw.energy", (10, 0), (11, 100))
    both = spent(one, history(*HALF), history((9.0, 12.0, "optimizer_step")))
    assert [sum(used.values()) for used in both] == [50, 50]


def test_a_sample_waits_until_the_phases_of_its_time_are_known() -> None:
    one = gpu("hw.energy", (10, 0), (11, 100), (13, 300))
    known = history(*HALF)
    (used,) = spent(one, known)
    assert sum(used.values()) == 100
    known.add_period(12 * S, 14 * S, "gpu_compute")
    one.share_out([GpuUser("0", known, used, DeviceTimes())], 0)
    assert sum(used.values()) == 300


def test_time_without_phases_is_unknown_in_the_end() -> None:
    (used,) = spent(gpu("hw.energy", (10, 0), (14, 400)), history(*HALF), at_latest=20 * S)
    assert used == pytest.approx({"data_loading": 50, "gpu_compute": 150, "unknown": 200})


def test_a_counter_reset_and_a_long_gap_add_no_energy() -> None:
    assert spent(gpu("hw.energy", (10, 1000), (11, 5)), history(*HALF))[0] == {}
    assert spent(gpu("hw.energy", (10, 0), (1000, 5)), history(*HALF), at_latest=2000 * S)[0] == {}


@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from(["data_loading", "gpu_compute"])), min_size=1), st.data())
def test_shares_always_add_up_to_one(lengths: list[tuple[int, str]], data: st.DataObject) -> None:
    known, at = EnergyHistory(), 100
    for length, phase in lengths:
        known.add_period(at, at + length, phase)
        at += length
    start = data.draw(st.integers(1, at))
    end = data.draw(st.integers(start + 1, at + 50))
    assert sum(known.shares(start, end).values()) == pytest.approx(1.0)
