"""Above a rate, whole steps of a job are left out. Each step is read whole or not at all, and all are counted."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from otel_zernel_receivers.ebpf.budget.step_sample import BLOCK, Skipped, StepSample
from otel_zernel_receivers.ebpf.kernel.kernel_structs import EVENT, Interval

LOAD, BACKWARD, OPTIMIZER = Interval.DATA_LOADING, Interval.BACKWARD, Interval.OPTIMIZER
STEP = 500_000
Row = tuple[int, int, int]
"""The interval of an event, its begin and its end."""


def steps(lasts: Sequence[int], *, loads: bool = True, start: int = 1_000_000) -> list[Row]:
    """The events of steps that last so long (ns)."""
    rows: list[Row] = []
    at = start
    for lasted in lasts:
        if loads:
            rows.append((LOAD, at, at + lasted // 10))
        rows.append((BACKWARD, at + lasted // 2, at + lasted * 8 // 10))
        rows.append((OPTIMIZER, at + lasted * 8 // 10, at + lasted))
        at += lasted
    return rows


def events_of(rows: Sequence[Row], row: int = 3, tid: int = 7) -> np.ndarray:
    events = np.zeros(len(rows), EVENT)
    events["row"], events["generation"], events["pid"], events["tid"] = row, 1, row + 100, tid
    for name, column in zip(("interval", "begin", "end"), zip(*rows, strict=True), strict=True):
        events[name] = column
    return events


def steps_in(events: np.ndarray, skipped: Sequence[Skipped], kind: Interval) -> int:
    """The steps that are read, and those that are left out. Each of the former has all of its events."""
    ends = events["end"][events["interval"] == kind].tolist()
    begins = {one.begin for one in skipped}
    read = 0
    for first, last in pairwise(ends):
        if first in begins:
            continue
        read += 1
        inside = events[(events["begin"] >= first) & (events["end"] <= last)]
        assert Interval.BACKWARD in inside["interval"]
    return read + sum(one.steps for one in skipped)


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize("count", [600, 1_800, 20_000])
def test_a_part_of_many_short_steps_is_read_and_all_are_counted(count: int, loads: bool) -> None:
    events, skipped = StepSample(500, 1.0).take(events_of(steps([STEP] * count, loads=loads)))
    kind = LOAD if loads else OPTIMIZER
    read = np.count_nonzero(events["interval"] == kind)
    assert 250 <= read <= 500 + 2 * BLOCK
    assert steps_in(events, skipped, kind) == count - 1
    assert {(one.process.row, one.process.pid, one.thread) for one in skipped} == {(3, 103, 7)}
    ends = set(events["end"][events["interval"] == kind].tolist())
    assert all({one.begin, one.end} <= ends for one in skipped)


def test_few_steps_are_all_read() -> None:
    events = events_of(steps([STEP] * 400))
    taken, skipped = StepSample(500, 1.0).take(events)
    assert (len(taken), skipped) == (len(events), [])


def test_without_a_limit_all_steps_are_read() -> None:
    events = events_of(steps([STEP] * 4_000))
    taken, skipped = StepSample(0, 1.0).take(events)
    assert (len(taken), skipped) == (len(events), [])


def test_long_steps_are_all_read() -> None:
    lasts = [50 * STEP if at % 100 == 50 else STEP for at in range(3_000)]
    events, skipped = StepSample(500, 1.0).take(events_of(steps(lasts)))
    ends = events["end"][events["interval"] == LOAD].astype(np.int64)
    begins = {one.begin for one in skipped}
    long = [last - first for first, last in pairwise(ends.tolist()) if first not in begins and last - first > 5_000_000]
    assert len(long) == 30
    assert all(one.end - one.begin < 5_000_000 * one.steps for one in skipped)
    assert steps_in(events, skipped, LOAD) == 2_999


def test_all_parts_of_the_time_are_read_alike_over_several_readings() -> None:
    sample, rows = StepSample(500, 1.0), steps([STEP] * 8_000)
    read = []
    for first in range(0, len(rows), 3 * 1_000):
        taken, _ = sample.take(events_of(rows[first : first + 3 * 1_000]))
        read.append(np.count_nonzero(taken["interval"] == OPTIMIZER))
    assert min(read) > 0.7 * max(read)


def test_steps_of_ranks_and_of_gpus_are_all_read() -> None:
    for name in ("collectives", "launches", "backward_launches"):
        events = events_of(steps([STEP] * 4_000))
        events["snapshot_end"][name] = 1
        taken, skipped = StepSample(500, 1.0).take(events)
        assert (len(taken), skipped) == (len(events), [])


def test_other_processes_and_what_lasts_for_many_steps_are_read() -> None:
    rows = steps([STEP] * 4_000)
    fast, slow = events_of(rows), events_of(steps([40 * STEP] * 100), row=4)
    outer = events_of([(Interval.USER, 0, rows[-1][2]), (Interval.PROCESS, STEP * 1_000, STEP * 1_001)])
    taken, skipped = StepSample(500, 1.0).take(np.concatenate([slow, outer, fast]))
    assert np.count_nonzero(taken["row"] == 4) == len(slow)
    assert {one.process.row for one in skipped} == {3}
    assert {Interval.USER, Interval.PROCESS} <= set(taken["interval"].tolist())


def test_several_fast_jobs_share_the_limit() -> None:
    jobs = [events_of(steps([STEP] * 2_000), row=row) for row in range(4)]
    taken, skipped = StepSample(500, 1.0).take(np.concatenate(jobs))
    assert np.count_nonzero(taken["interval"] == LOAD) < 500 + 4 * 2 * BLOCK
    for row in range(4):
        of_row = [one for one in skipped if one.process.row == row]
        assert steps_in(taken[taken["row"] == row], of_row, LOAD) == 1_999
