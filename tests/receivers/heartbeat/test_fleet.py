"""The judgement of workers, with a clock that stands still."""

import json
from typing import Any

from otel_zernel.testing import FakeClock
from otel_zernel_libraries.cluster.messages import WorkerInfo
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.emission import batch_of, ends_of, points_of
from tests.otlp import rows_in
from tests.receivers.heartbeat.workers import SENDER, Stream, beat, fleet_of


def test_a_worker_is_inactive_after_its_silence_and_active_with_its_next_heartbeat() -> None:
    fleet = fleet_of(clock := FakeClock())
    beat(fleet)
    clock.advance(30)
    fleet.sweep()
    assert fleet.workers["w"].active
    clock.advance(0.1)
    fleet.sweep()
    assert json.loads(fleet.workers["w"].telemetry)["is_active"] is False
    beat(fleet)
    assert json.loads(fleet.workers["w"].telemetry)["is_active"] is True


def test_a_closed_stream_makes_a_worker_unknown_and_not_inactive() -> None:
    fleet, stream = fleet_of(clock := FakeClock()), Stream()
    beat(fleet, stream=stream)
    states = [(fleet.workers["w"].state, fleet.workers["w"].active)]
    stream.closed = True
    fleet.sweep()
    states.append((fleet.workers["w"].state, fleet.workers["w"].active))
    clock.advance(31)
    fleet.sweep()
    states.append((fleet.workers["w"].state, fleet.workers["w"].active))
    assert states == [("active", True), ("unknown", True), ("inactive", False)]


def test_a_change_of_the_wall_clock_judges_nobody() -> None:
    class SetBack(FakeClock):
        shift = 0

        def time_ns(self) -> int:
            return super().time_ns() + self.shift

    fleet = fleet_of(clock := SetBack())
    beat(fleet)
    for clock.shift in (-(10**15), 10**15):
        fleet.sweep()
        assert fleet.workers["w"].active


def test_a_worker_is_removed_after_forget_after_and_readers_see_null() -> None:
    fleet = fleet_of(clock := FakeClock(), forget_after="1m")
    beat(fleet)
    seen = fleet.changes.sequence
    clock.advance(61)
    fleet.sweep()
    assert fleet.workers == {}
    changed = fleet.changes.since(seen)
    assert changed == ["w"]
    assert json.loads(fleet.some_json(changed)) == {"w": None}


def test_after_a_reload_every_active_worker_has_a_full_timeout() -> None:
    fleet = fleet_of(clock := FakeClock())
    beat(fleet)
    clock.advance(29)
    fleet.resume(HeartbeatReceiver.Config.model_validate({}))
    clock.advance(29)
    fleet.sweep()
    assert fleet.workers["w"].active


def test_a_new_worker_replaces_the_longest_inactive_one() -> None:
    fleet = fleet_of(clock := FakeClock(), max_workers=2)
    beat(fleet, "old")
    clock.advance(1)
    beat(fleet, "newer")
    assert not beat(fleet, "third")
    clock.advance(31)
    fleet.sweep()
    assert beat(fleet, "third")
    assert set(fleet.workers) == {"newer", "third"}


def test_a_reader_gets_each_changed_worker_once_and_the_whole_state_beyond_what_is_remembered() -> None:
    fleet = fleet_of(FakeClock())
    start = fleet.changes.sequence
    for worker in ("a", "b", "a"):
        beat(fleet, worker)
    assert fleet.changes.since(start) == ["a", "b"]
    assert fleet.changes.since(start + 2) == ["a"]
    assert fleet.changes.since(fleet.changes.sequence) == []
    assert fleet.changes.since(start - 1) is None
    assert fleet.changes.since(fleet.changes.sequence + 1) is None


def test_removed_workers_are_remembered_up_to_a_bound() -> None:
    fleet = fleet_of(clock := FakeClock(), forget_after="1m", inactive_after="1m", max_workers=30_000)
    beat(fleet, "first")
    seen = fleet.changes.sequence
    for number in range(10_001):
        beat(fleet, f"w{number}")
    clock.advance(61)
    while fleet.sweep():
        pass
    assert fleet.changes.since(seen) is None
    assert len(fleet.changes.since(fleet.changes.sequence - 5) or []) == 5


def test_thousands_of_silent_workers_are_marked_in_several_sweeps() -> None:
    fleet = fleet_of(clock := FakeClock())
    for number in range(2500):
        beat(fleet, f"w{number}")
    clock.advance(31)
    assert [fleet.sweep() for _ in range(3)] == [True, True, False]
    assert not any(worker.active for worker in fleet.workers.values())


def test_the_usages_of_an_inactive_worker_end_and_all_series_of_a_removed_one() -> None:
    fleet = fleet_of(clock := FakeClock())
    beat(fleet, cpu_usage=50)
    worker = fleet.workers["w"]
    worker.samples.clear()
    clock.advance(31)
    fleet.sweep()
    assert flags(batch_of([points_of(worker, 1)])) == {
        "system.cpu.utilization": True,
        "system.memory.utilization": True,
        "system.filesystem.utilization": True,
        "zernel.worker.gpu.utilization": True,
        "zernel.worker.running_tasks": True,
        "zernel.worker.active": False,
        "zernel.worker.last_seen": False,
    }
    assert all(flags(batch_of([ends_of(worker, 1)])).values())


def test_a_worker_that_registered_without_gpus_has_no_gpu_usage() -> None:
    fleet = fleet_of(FakeClock())
    fleet.register(WorkerInfo(worker_id="w", total_cpu=4).SerializeToString(), SENDER)
    beat(fleet)
    found = flags(batch_of([points_of(fleet.workers["w"], 1)]))
    assert "zernel.worker.gpu.utilization" not in found
    assert "zernel.worker.gpu.count" not in found
    assert "system.cpu.logical.count" in found


def test_the_number_of_points_is_that_of_the_message() -> None:
    fleet = fleet_of(FakeClock())
    fleet.register(WorkerInfo(worker_id="w", total_cpu=4, total_gpu=2).SerializeToString(), SENDER)
    for _ in range(3):
        beat(fleet)
    batch = batch_of([points_of(fleet.workers["w"], 1), ends_of(fleet.workers["w"], 1)])
    assert batch.point_count == len(rows_in(batch.metrics))


def flags(batch: Any) -> dict[str, bool]:
    """Whether the series of each metric ends."""
    return {row.metric.name: row.value is None for row in rows_in(batch.metrics)}
