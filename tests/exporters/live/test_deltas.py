"""A reader that follows the deltas has the same state as one that takes a new snapshot."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training.interval_spans import Ending
from tests.exporters.live.live_runs import (
    PROCESS,
    RANK,
    SECOND,
    START,
    Attributes,
    LiveCopy,
    LiveRun,
    durations,
    ended,
    phase_times,
    points,
    recorded_batches,
    step,
)

HISTORY = 3
values = st.one_of(st.none(), st.floats(0, 1e6), st.sampled_from([math.nan, math.inf, -math.inf, -1.0]))
JOB: dict[str, AttributeValue] = {"service.name": "job", "zernel.job.id": "j"}


def process(pid: int) -> Attributes:
    return {**PROCESS, "process.pid": pid, "zernel.rank": pid, "zernel.world_size": 4, "zernel.job.id": "j"}


processes = st.integers(0, 3).map(process)
GAUGES: dict[str, Attributes] = {
    "zernel.step.rate": {},
    "zernel.step.jitter": {},
    "zernel.verdict": {"zernel.verdict": "input_bound"},
    "zernel.phase.fraction": {"zernel.phase": "gpu_compute", "zernel.phase.source": "scopes"},
    "zernel.phase.elapsed": {"zernel.phase": "gpu_compute"},
    "zernel.steps": {"zernel.step.kind": "training"},
    "zernel.dataloader.workers": {},
    "zernel.ebpf.missing_marks": {"zernel.mark": "scopes"},
}
GPU_GAUGES: dict[str, Attributes] = {
    "hw.gpu.utilization": {"hw.gpu.task": "general"},
    "hw.power": {},
    "zernel.gpu.throttle.active": {"zernel.gpu.throttle.reason": "hw_slowdown"},
    "zernel.gpu.xid.errors": {"zernel.gpu.xid.code": "79"},
    "zernel.gpu.process.memory.usage": {"process.pid": 1},
}
JOB_GAUGES: dict[str, Attributes] = {
    "zernel.job.verdict": {"zernel.job.verdict": "straggler"},
    "zernel.job.rank.lateness": {"zernel.rank": 1},
    "zernel.job.step.duration": {},
    "zernel.step.critical_path.time": {"zernel.rank": 2, "zernel.phase": "gpu_compute"},
}
batches = st.one_of(
    st.builds(
        lambda name, of, value: points(name, [(GAUGES[name], value)], of), st.sampled_from([*GAUGES]), processes, values
    ),
    st.builds(
        lambda name, id_, value: points(name, [({**GPU_GAUGES[name], "hw.id": id_}, value)], {"host.name": "n1"}),
        st.sampled_from([*GPU_GAUGES]),
        st.sampled_from(["GPU-1", "GPU-2"]),
        values,
    ),
    st.builds(
        lambda name, value: points(name, [(JOB_GAUGES[name], value)], JOB), st.sampled_from([*JOB_GAUGES]), values
    ),
    st.builds(lambda of, spent: phase_times(of, gpu_compute=spent, data_loading=1.0), processes, values),
    st.builds(
        lambda of, lasted: durations(*lasted, resource=of),
        processes,
        st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=3),
    ),
    st.builds(
        lambda of, number, at: step(number, START + at * SECOND, SECOND, of),
        processes,
        st.integers(1, 50),
        st.integers(0, 9),
    ),
    st.builds(lambda of: ended(of, Ending("exit", exit_code=1)), processes),
)
actions = st.lists(st.one_of(batches, st.floats(0.1, 90), st.just("look")), max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions)
async def test_a_snapshot_and_its_deltas_are_the_later_snapshot(done: list[Batch | float | str]) -> None:
    run = LiveRun(history=HISTORY)
    reader = LiveCopy(run.exporter.snapshot())
    for action in done:
        if isinstance(action, Batch):
            await run.exporter.export(action)
        elif isinstance(action, float):
            run.clock.advance(action)
        else:
            changes = run.exporter.changes_since(reader.state["seq"])
            if changes is None:
                reader = LiveCopy(run.exporter.snapshot())
            else:
                reader.follow(changes)
            assert reader.state == json.loads(json.dumps(run.exporter.snapshot()))


@pytest.mark.parametrize("every", [1, 3, 7])
async def test_deltas_of_a_recorded_job_add_up(every: int) -> None:
    run = LiveRun()
    reader = LiveCopy(run.exporter.snapshot())
    for position, batch in enumerate(recorded_batches("gloo_DDP_a_late_rank", is_job=True)):
        await run.exporter.export(batch)
        run.clock.advance(0.4)
        if position % every == 0:
            reader.follow(run.exporter.changes_since(reader.state["seq"]) or [])
            assert reader.state == json.loads(json.dumps(run.exporter.snapshot()))


async def test_a_delta_has_only_what_changed() -> None:
    run = LiveRun()
    before = await run.add(phase_times(gpu_compute=1.0), points("zernel.step.rate", [({}, 2.0)]))
    await run.exporter.export(points("zernel.step.rate", [({}, 3.0)], time_ns=START + SECOND))
    (delta,) = run.exporter.changes_since(before["seq"]) or []
    assert delta["set"] == [
        [["ranks", RANK, "step_rate"], 3.0],
        [["ranks", RANK, "seen"], (START + SECOND) // 1_000_000],
    ]
    assert "remove" not in delta
    assert "append" not in delta


async def test_nothing_new_makes_no_delta() -> None:
    run = LiveRun()
    state = await run.add(phase_times(gpu_compute=1.0))
    run.after(2)  # the column of the shares closes
    seq = run.exporter.snapshot()["seq"]
    assert seq > state["seq"]
    run.clock.advance(5)
    assert run.exporter.changes_since(seq) == []


async def test_an_unknown_number_has_no_deltas() -> None:
    run = LiveRun()
    state = await run.add(phase_times(gpu_compute=1.0))
    assert run.exporter.changes_since(state["seq"] + 1) is None
    assert run.exporter.changes_since(7) is None


async def test_without_readers_for_a_minute_no_deltas_are_kept() -> None:
    run = LiveRun()
    state = await run.add(phase_times(gpu_compute=1.0))
    run.clock.advance(61)
    await run.exporter.export(phase_times(gpu_compute=2.0))
    assert run.exporter.changes_since(state["seq"]) is None


async def test_numbers_grow_over_a_restart() -> None:
    before = await LiveRun().add(phase_times(gpu_compute=1.0))
    assert LiveRun(start_ns=START + SECOND).exporter.snapshot()["seq"] > before["seq"]
