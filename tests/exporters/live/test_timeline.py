"""The timeline, the heat and the shares keep the newest, in order."""

from tests.exporters.live.live_runs import PROCESS, RANK, SECOND, START, LiveRun, durations, phase_times, step

MS = 1_000_000


async def test_a_row_has_number_start_duration_phases_and_criticality() -> None:
    state = await LiveRun().add(step(4, START + 1500 * MS, 20 * MS))
    assert state["timeline"][RANK] == [[4, (START + 1500 * MS) / MS, 0.02, [0.0, 0.02, 0.0, 0.0, 0.0], 0]]


async def test_the_oldest_steps_leave() -> None:
    run = LiveRun(history=3)
    state = await run.add(*(step(number, START + number * SECOND, SECOND) for number in range(5)))
    assert [row[0] for row in state["timeline"][RANK]] == [2, 3, 4]


async def test_steps_that_arrive_late_are_put_into_their_place() -> None:
    run = LiveRun()
    state = await run.add(*(step(number, START + number * SECOND, SECOND) for number in (1, 3, 2)))
    assert [row[0] for row in state["timeline"][RANK]] == [1, 2, 3]


async def test_a_step_that_arrives_twice_is_shown_once() -> None:
    one = step(1, START, SECOND)
    assert len((await LiveRun().add(one, one))["timeline"][RANK]) == 1


async def test_a_column_has_the_steps_of_all_ranks_of_a_second() -> None:
    run = LiveRun()
    other = {**PROCESS, "process.pid": 8}
    await run.add(durations(0.1, 0.1, 2.0), durations(0.1, resource=other, time_ns=START + 400 * MS))
    assert run.exporter.snapshot()["heat"]["columns"] == []
    heat = run.after(1)["heat"]
    ((time, counts),) = heat["columns"]
    assert time == (START + 400 * MS) // MS
    assert {at: count for at, count in enumerate(counts) if count} == {
        next(at for at, bound in enumerate(heat["bounds"]) if bound >= 0.1): 3,
        next(at for at, bound in enumerate(heat["bounds"]) if bound >= 2.0): 1,
    }


async def test_the_bounds_ascend_and_the_last_count_has_all_longer_steps() -> None:
    run = LiveRun()
    await run.add(durations(1e5))
    heat = run.after(1)["heat"]
    assert heat["bounds"] == sorted(set(heat["bounds"]))
    assert len(heat["bounds"]) == len(heat["columns"][0][1]) == 128
    assert heat["columns"][0][1][-1] == 1


async def test_the_shares_are_the_mean_of_the_ranks() -> None:
    run = LiveRun()
    other = {**PROCESS, "process.pid": 8}
    await run.add(phase_times(gpu_compute=1.0), phase_times(other, data_loading=50.0, gpu_compute=50.0))
    assert run.after(1)["shares"] == [[START // MS, [0.25, 0.75, 0.0, 0.0, 0.0]]]


async def test_shares_count_the_time_since_the_last_report() -> None:
    run = LiveRun()
    await run.add(phase_times(gpu_compute=100.0, data_loading=0.0))
    run.after(2)
    await run.add(phase_times(gpu_compute=101.0, data_loading=1.0, time_ns=START + SECOND))
    assert run.after(1)["shares"][-1] == [(START + SECOND) // MS, [0.5, 0.5, 0.0, 0.0, 0.0]]


async def test_columns_and_shares_are_bounded() -> None:
    run = LiveRun()
    for number in range(610):
        await run.add(durations(0.1), phase_times(gpu_compute=number + 1.0, time_ns=START + number * SECOND))
        run.clock.advance(1)
    state = run.after(1)
    assert len(state["heat"]["columns"]) == state["limits"]["heat"] == 200
    assert len(state["shares"]) == state["limits"]["shares"] == 600
