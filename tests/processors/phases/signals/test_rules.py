"""The seven rules at their boundaries, and the debouncing of phases."""

import pytest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_processors.phases.config import SignalsConfig
from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.signals.rules import Debounce, PhasePeriod, SignalReader, Signals, phase_by_rules

MS = 1_000_000
LIMITS = SignalsConfig()

CASES = [
    ("1: not ML", Signals(is_ml=False, nccl_active=True, futex_waits=3, gpu=0.9), "unknown"),
    ("2: NCCL and futex waits", Signals(is_ml=True, nccl_active=True, futex_waits=1), "nccl_collective"),
    ("2 before 3", Signals(True, True, 1, io_wait=0.9, gpu=0.0), "nccl_collective"),
    ("2: no futex waits", Signals(is_ml=True, nccl_active=True, futex_waits=0), "unknown"),
    ("2: no NCCL", Signals(is_ml=True, nccl_active=False, futex_waits=9), "unknown"),
    ("3: waiting for I/O, GPU idle", Signals(is_ml=True, io_wait=0.31, gpu=0.09), "data_loading"),
    ("3: I/O wait at its bound", Signals(is_ml=True, io_wait=0.3, gpu=0.09), "unknown"),
    ("3: GPU at its bound", Signals(is_ml=True, io_wait=0.31, gpu=0.1), "unknown"),
    ("4: GPU busy, CPU idle", Signals(is_ml=True, gpu=0.81), "gpu_compute"),
    ("4: GPU at its bound", Signals(is_ml=True, gpu=0.8), "unknown"),
    ("4: a CPU burst", Signals(is_ml=True, gpu=0.81, cpu_burst_ns=5 * MS), "unknown"),
    (
        "4 before 5: any burst excludes 4",
        Signals(True, gpu=0.9, cpu_burst_ns=1, gpu_synced=True),
        "optimizer_step",
    ),
    ("5: a short burst after a sync", Signals(is_ml=True, cpu_burst_ns=5 * MS - 1, gpu_synced=True), "optimizer_step"),
    ("5: burst at its bound", Signals(is_ml=True, cpu_burst_ns=5 * MS, gpu_synced=True), "unknown"),
    ("5: no burst", Signals(is_ml=True, cpu_burst_ns=0, gpu_synced=True), "unknown"),
    ("5: no sync", Signals(is_ml=True, cpu_burst_ns=1 * MS, gpu_synced=False), "unknown"),
    ("5 before 6", Signals(True, io_wait=0.2, gpu=0.5, cpu_burst_ns=1, gpu_synced=True), "optimizer_step"),
    ("6: some I/O wait, GPU half busy", Signals(is_ml=True, io_wait=0.16, gpu=0.5), "data_loading"),
    ("6: I/O wait at its bound", Signals(is_ml=True, io_wait=0.15, gpu=0.5), "unknown"),
    ("6: GPU at its lower bound", Signals(is_ml=True, io_wait=0.16, gpu=0.1), "unknown"),
    ("6: GPU at its upper bound", Signals(is_ml=True, io_wait=0.16, gpu=0.8, cpu_burst_ns=9 * MS), "unknown"),
    ("6 matches if 3 does not", Signals(is_ml=True, io_wait=0.9, gpu=0.11), "data_loading"),
    ("7: nothing", Signals(is_ml=True), "unknown"),
]


@pytest.mark.parametrize(("signals", "phase"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_first_rule_that_matches_counts(signals: Signals, phase: str) -> None:
    assert phase_by_rules(signals, LIMITS) == phase


THRESHOLDS = [
    ({"data_loading_io_wait": 0.5}, Signals(is_ml=True, io_wait=0.5), "unknown"),
    ({"data_loading_io_wait": 0.5}, Signals(is_ml=True, io_wait=0.51), "data_loading"),
    ({"data_loading_gpu": 0.2}, Signals(is_ml=True, io_wait=0.31, gpu=0.19), "data_loading"),
    ({"data_loading_gpu": 0.2}, Signals(is_ml=True, io_wait=0.31, gpu=0.2), "unknown"),
    ({"compute_gpu": 0.9}, Signals(is_ml=True, gpu=0.9), "unknown"),
    ({"compute_gpu": 0.9}, Signals(is_ml=True, gpu=0.91), "gpu_compute"),
    ({"optimizer_burst": "2ms"}, Signals(is_ml=True, cpu_burst_ns=2 * MS - 1, gpu_synced=True), "optimizer_step"),
    ({"optimizer_burst": "2ms"}, Signals(is_ml=True, cpu_burst_ns=2 * MS, gpu_synced=True), "unknown"),
    ({"mixed_io_wait": 0.25}, Signals(is_ml=True, io_wait=0.25, gpu=0.5), "unknown"),
    ({"mixed_io_wait": 0.25}, Signals(is_ml=True, io_wait=0.26, gpu=0.5), "data_loading"),
    ({"data_loading_gpu": 0.4}, Signals(is_ml=True, io_wait=0.2, gpu=0.4), "unknown"),
    ({"compute_gpu": 0.9}, Signals(is_ml=True, io_wait=0.2, gpu=0.89), "data_loading"),
]


@pytest.mark.parametrize(("settings", "signals", "phase"), THRESHOLDS)
def test_every_threshold_can_be_set(settings: dict[str, float | str], signals: Signals, phase: str) -> None:
    assert phase_by_rules(signals, SignalsConfig.model_validate(settings)) == phase


def test_the_rule_for_collectives_can_be_turned_off() -> None:
    signals = Signals(True, True, 1, io_wait=0.9)
    assert phase_by_rules(signals, SignalsConfig(collectives=False)) == "data_loading"


@pytest.mark.parametrize(
    ("stability", "values", "states"),
    [
        (3, "bbb", "aab"),
        (3, "bbabbb", "aaaaab"),
        (3, "bbcbbb", "aaaaab"),
        (3, "bcbcbc", "aaaaaa"),
        (1, "bcb", "bcb"),
        (0, "bcb", "bcb"),
        (2, "bbaabb", "abbaab"),
    ],
)
def test_a_new_state_needs_equal_values_in_a_row(stability: int, values: str, states: str) -> None:
    debounce = Debounce(stability, "a")
    found = []
    for value in values:
        debounce.update(value)
        found.append(debounce.state)
    assert "".join(found) == states


def point(name: str, time_ms: int, value: float, delta: bool = False) -> InputPoint:
    return InputPoint(name, 0, 1 + time_ms * MS, value, "node", 42, "", delta, Resource())


def test_signals_are_evaluated_every_100_ms() -> None:
    reader = SignalReader(SignalsConfig(stability=1))
    periods: list[PhasePeriod | None] = []
    for at in range(0, 500, 50):
        periods.append(reader.read(point("zernel.process.io.wait", at, at * 0.4 / 1000), gpu=0.05))
        periods.append(reader.read(point("zernel.cuda.launch.latency", at, 10, delta=True), gpu=0.05))
    found = [(period.start // MS, period.end // MS, period.phase) for period in periods if period]
    assert found == [
        (0, 100, "unknown"),
        (100, 200, "data_loading"),
        (200, 300, "data_loading"),
        (300, 400, "data_loading"),
    ]


def test_with_rare_readings_each_reading_is_evaluated() -> None:
    reader = SignalReader(SignalsConfig())
    periods = [
        period
        for at in range(0, 7000, 1000)
        for name, value in (("zernel.process.io.wait", at * 0.4 / 1000), ("zernel.cuda.memory.used", 1e9))
        if (period := reader.read(point(name, at, value), gpu=0.05))
    ]
    assert [period.phase for period in periods] == ["unknown"] * 3 + ["data_loading"] * 2
    assert {period.end - period.start for period in periods} == {1000 * MS}


@pytest.mark.parametrize("metric", ["zernel.nccl.collective.enqueue.duration", "zernel.nccl.collective.duration"])
def test_either_duration_of_collectives_shows_that_nccl_is_active(metric: str) -> None:
    reader = SignalReader(SignalsConfig(stability=1))
    for at in range(0, 500, 100):
        reader.read(point(metric, at, 1, delta=True), gpu=0.0)
        reader.read(point("zernel.distributed.sync.wait", at, 1, delta=True), gpu=0.0)
    assert reader.phase == "nccl_collective"


def test_one_gpu_sync_counts_for_all_later_evaluations() -> None:
    reader = SignalReader(SignalsConfig(stability=1))
    for at in range(0, 500, 100):
        reader.read(point("zernel.cuda.sync.wait", at, float(at == 0), delta=True), gpu=0.5)
        reader.read(point("zernel.process.cpu.burst", at, 0.001), gpu=0.5)
    assert reader.phase == "optimizer_step"


def test_the_process_own_gpu_utilization_counts_first() -> None:
    reader = SignalReader(SignalsConfig(stability=1))
    for at in range(0, 500, 100):
        reader.read(point("zernel.cuda.launch.latency", at, 10, delta=True), gpu=1.0)
        reader.read(point("zernel.gpu.process.utilization", at, 0.0), gpu=1.0)
    assert reader.phase == "unknown"
