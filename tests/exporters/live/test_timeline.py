"""The timeline, the heat and the shares keep the newest, in order."""

from itertools import pairwise
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel_libraries.serving.api.live import apply_delta
from tests.exporters.live.live_runs import (
    PROCESS,
    RANK,
    SECOND,
    START,
    Attributes,
    LiveRun,
    durations,
    phase_times,
    points,
    step,
)

MS = 1_000_000


async def test_a_row_has_number_start_duration_phases_and_criticality() -> None:
    state = await LiveRun().add(step(4, START + 1500 * MS, 20 * MS))
    assert state["timeline"][RANK] == [[4, (START + 1500 * MS) / MS, 0.02, [0.0, 0.02, 0.0, 0.0, 0.0], 0]]


async def test_the_oldest_steps_leave() -> None:
    run = LiveRun(history=3)
    state = await run.add(*(step(number, START + number * 20 * SECOND, SECOND) for number in range(5)))
    assert [row[0] for row in state["timeline"][RANK]] == [2, 3, 4]


@pytest.mark.parametrize(("rate", "history"), [(5, 50), (5, 200), (50, 50), (300, 50)])
async def test_the_rows_of_fast_steps_cover_20_seconds_without_a_hole(rate: int, history: int) -> None:
    run, lasts = LiveRun(history=history), SECOND // rate
    shown: dict[str, Any] = run.exporter.snapshot()
    for second in range(25):
        steps = (step(second * rate + at, START + second * SECOND + at * lasts, lasts) for at in range(rate))
        await run.add(Batch.join(list(steps)))
        for delta in run.exporter.changes_since(shown["seq"]) or ():
            apply_delta(shown, delta)
    state = run.after(1)
    rows = state["timeline"][RANK]
    assert shown["timeline"][RANK] == rows
    assert len(rows) <= history
    assert 14 <= rows[-1][1] / 1000 + rows[-1][2] - rows[0][1] / 1000 <= 45
    for before, row in pairwise(rows):
        assert row[1] == pytest.approx(before[1] + before[2] * 1000, abs=0.01)
        assert row[0] == before[0] + (before[5] if len(before) > 5 else 1)
    assert all(row[6] == pytest.approx(1 / rate, abs=2e-6) for row in rows if len(row) > 5)
    assert sum(map(sum, (row[3] for row in rows))) == pytest.approx(sum(row[2] for row in rows), rel=0.01)
    assert state["ranks"][RANK]["step"]["last"] == pytest.approx(1 / rate, abs=1e-6)


async def test_a_pause_between_fast_steps_stays_visible() -> None:
    run, lasts = LiveRun(history=50), SECOND // 100
    for second in (*range(10), *range(12, 20)):
        steps = [step(second * 100 + at, START + second * SECOND + at * lasts, lasts) for at in range(100)]
        await run.add(Batch.join(steps))
        run.after(1)
    rows = run.exporter.snapshot()["timeline"][RANK]
    pauses = [row[1] - before[1] - before[2] * 1000 for before, row in pairwise(rows)]
    assert max(pauses) == pytest.approx(2000, abs=1)
    assert sorted(pauses)[-2] == pytest.approx(0, abs=0.01)


async def test_steps_that_arrive_late_are_put_into_their_place() -> None:
    run = LiveRun()
    state = await run.add(*(step(number, START + number * SECOND, SECOND) for number in (1, 3, 2)))
    assert [row[0] for row in state["timeline"][RANK]] == [1, 2, 3]


async def test_a_step_that_arrives_twice_is_shown_once() -> None:
    one = step(1, START, SECOND)
    assert len((await LiveRun().add(one, one))["timeline"][RANK]) == 1


JOB = points("zernel.job.step.duration", [({}, 1.0)], {"service.name": "train", "zernel.job.id": "train"})


def rank_of_job(rank: int) -> Attributes:
    return {**PROCESS, "process.pid": 8 + rank, "zernel.rank": rank, "zernel.world_size": 2, "zernel.job.id": "train"}


async def test_a_column_has_the_steps_of_all_ranks_of_a_job_and_second() -> None:
    run = LiveRun()
    first = durations(0.1, 0.1, 2.0, resource=rank_of_job(0))
    await run.add(first, durations(0.1, resource=rank_of_job(1), time_ns=START + 400 * MS), JOB)
    assert run.exporter.snapshot()["heat"]["columns"] == {}
    heat = run.after(1)["heat"]
    ((time, first, counts),) = heat["columns"]["train"]
    assert time == (START + 400 * MS) // MS
    assert {first + at: count for at, count in enumerate(counts) if count} == {
        next(at for at, bound in enumerate(heat["bounds"]) if bound >= 0.1): 3,
        next(at for at, bound in enumerate(heat["bounds"]) if bound >= 2.0): 1,
    }


async def test_the_columns_of_many_jobs_are_all_kept() -> None:
    run = LiveRun()
    alone = [{**PROCESS, "process.pid": pid} for pid in range(500)]
    for seconds in (0.1, 0.2):
        await run.add(*(durations(seconds, resource=resource) for resource in alone))
        closed = run.after(1)["heat"]["columns"]
    assert len(closed) == len(alone)
    buckets = {tuple(first for _, first, _ in columns) for columns in closed.values()}
    ((before, after),) = buckets
    assert before < after


async def test_the_bounds_ascend_and_the_last_count_has_all_longer_steps() -> None:
    run = LiveRun()
    await run.add(durations(1e5))
    heat = run.after(1)["heat"]
    assert heat["bounds"] == sorted(set(heat["bounds"]))
    assert len(heat["bounds"]) == 128
    assert heat["columns"][RANK][0][1:] == [127, [1]]


async def test_the_shares_are_the_mean_of_the_ranks() -> None:
    run = LiveRun()
    one, other = rank_of_job(0), rank_of_job(1)
    await run.add(phase_times(one, gpu_compute=1.0), phase_times(other, data_loading=50.0, gpu_compute=50.0), JOB)
    assert run.after(1)["shares"] == {"train": [[START // MS, [0.25, 0.75, 0.0, 0.0, 0.0]]]}


async def test_shares_count_the_time_since_the_last_report() -> None:
    run = LiveRun()
    await run.add(phase_times(gpu_compute=100.0, data_loading=0.0))
    run.after(2)
    await run.add(phase_times(gpu_compute=101.0, data_loading=1.0, time_ns=START + SECOND))
    assert run.after(1)["shares"][RANK][-1] == [(START + SECOND) // MS, [0.5, 0.5, 0.0, 0.0, 0.0]]


async def test_columns_and_shares_are_bounded() -> None:
    run = LiveRun()
    for number in range(610):
        await run.add(durations(0.1), phase_times(gpu_compute=number + 1.0, time_ns=START + number * SECOND))
        run.clock.advance(1)
    state = run.after(1)
    assert len(state["heat"]["columns"][RANK]) == state["limits"]["heat"] == 200
    assert len(state["shares"][RANK]) == state["limits"]["shares"] == 600
