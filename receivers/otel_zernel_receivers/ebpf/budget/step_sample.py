"""Leaves out whole steps of jobs that take hundreds of them a second: to read them all would take most of a CPU.

Of the short steps of a thread, blocks of neighbours are read, evenly over its time. Longer steps are all read: an
evaluation or a checkpoint is rare. A step is read whole or not at all, and `Skipped` says where steps were left out.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.training.interval_spans import SHORT_STEP_NS
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Interval
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

BLOCK: Final = 64
"""Neighbouring steps that are read, or left out, together."""
_FEWEST: Final = 2
"""Steps in a row that are worth leaving out."""
_UPDATES_OF_LOAD: Final = 64
"""With more optimizer steps for each load, a thread has no loader that divides its steps."""
_OF_STEPS: Final = (
    *(Interval.DATA_LOADING, Interval.OPTIMIZER, Interval.ZERO_GRAD, Interval.BACKWARD, Interval.DDP),
    *(Interval.USER, Interval.SYNC, Interval.OPERATORS),
)


class Skipped(NamedTuple):
    """Steps that were left out. The event that ends the last of them was not."""

    process: WatchedProcess
    thread: int
    begin: int
    """CLOCK_MONOTONIC, ns."""
    end: int
    steps: int


class StepSample:
    """The steps that are read. Call `take` for each reading."""

    def __init__(self, rate: float, interval: float) -> None:
        """`rate`: steps a second of all processes that are read, about; 0 for all. `interval`: seconds of a reading."""
        self._most = max(round(rate * interval), BLOCK) if rate else 0
        self._blocks: dict[tuple[int, int], int] = {}
        """By row and thread: the blocks that the latest readings had."""

    def take(self, events: NDArray[Any]) -> tuple[NDArray[Any], list[Skipped]]:
        """The events of a reading (records of `kernel_structs.EVENT`) without those of the steps that are left out."""
        threads = list(_fast_threads(events)) if self._most else []
        if sum(len(ends) - 1 for ends in threads) <= self._most:
            self._blocks.clear()
            return events, []
        most = max(self._most // len(threads), BLOCK)
        keeps, skipped, blocks = np.ones(len(events), np.bool_), list[Skipped](), dict[tuple[int, int], int]()
        for ends in threads:
            first = events[ends[0]]
            key = int(first["row"]), int(first["tid"])
            before = self._blocks.get(key, 0)
            times = events["end"][ends].astype(np.int64)
            runs, blocks[key] = _left_out(np.diff(times), most, before)
            if len(runs):
                keeps &= ~_inside(events, int(first["row"]), times[runs])
                keeps[ends] |= ~np.isin(np.arange(len(ends)), _within(runs))
                process = WatchedProcess(key[0], int(first["generation"]), int(first["pid"]))
                counts = (runs[:, 1] - runs[:, 0]).tolist()
                periods = zip(times[runs].tolist(), counts, strict=True)
                skipped += [Skipped(process, key[1], begin, end, steps) for (begin, end), steps in periods]
        self._blocks = blocks
        return events[keeps], skipped


def _fast_threads(events: NDArray[Any]) -> Iterator[NDArray[np.intp]]:
    """For each thread with many steps that may be left out: the events that end them, in order.

    Ranks must show the same steps, and the work of a GPU follows from all launches to it.
    """
    marks = np.flatnonzero(np.isin(events["interval"], (Interval.DATA_LOADING, Interval.OPTIMIZER)))
    if len(marks) <= BLOCK:
        return
    rows, counts = np.unique(events["row"][marks], return_counts=True)
    for row in rows[counts > BLOCK].tolist():
        of_row = marks[events["row"][marks] == row]
        last = events["snapshot_end"][of_row]
        if any(last[name].any() for name in ("collectives", "launches", "backward_launches")):
            continue
        threads, counts = np.unique(events["tid"][of_row], return_counts=True)
        if len(threads) > 1 and counts.sum() - counts.max() > BLOCK:
            continue  # their steps have other ends
        of_thread = of_row[events["tid"][of_row] == threads[counts.argmax()]]
        is_load = events["interval"][of_thread] == Interval.DATA_LOADING
        has_loader = np.count_nonzero(~is_load) <= _UPDATES_OF_LOAD * np.count_nonzero(is_load)
        ends = of_thread[is_load == has_loader]
        times = events["end"][ends].astype(np.int64)
        if len(ends) > BLOCK and np.count_nonzero(np.diff(times) < SHORT_STEP_NS) > BLOCK:
            yield ends


def _left_out(lasted: NDArray[np.int64], most: int, blocks: int) -> tuple[NDArray[np.intp], int]:
    """The runs of steps that are left out, each as the number of its first one and of the one after its last. `lasted`:
    the duration (ns) of each step. `blocks`: those of the thread so far. Also returns that number with the new ones."""
    is_short = lasted < SHORT_STEP_NS
    every = -(-int(np.count_nonzero(is_short)) // most)
    number = blocks + np.arange(len(lasted)) // BLOCK
    is_out = is_short & (number % every > 0)
    runs = np.flatnonzero(np.diff(np.concatenate(([False], is_out, [False])).astype(np.int8))).reshape(-1, 2)
    return runs[runs[:, 1] - runs[:, 0] >= _FEWEST], int(number[-1]) + 1


def _within(runs: NDArray[np.intp]) -> NDArray[np.intp]:
    """The ends of steps that are left out, each by its number: all ends within the runs, but not the last one."""
    return np.concatenate([np.arange(first + 1, last) for first, last in runs])


def _inside(events: NDArray[Any], row: int, times: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an event lies in one of these periods (begin and end), and belongs to a step of this process."""
    begins, ends = (events[name].astype(np.int64) for name in ("begin", "end"))
    at = np.searchsorted(times[:, 0], begins, side="right") - 1
    inside = (at >= 0) & (ends <= times[at, 1]) & (events["row"] == row)
    of_step: NDArray[np.bool_] = inside & np.isin(events["interval"], _OF_STEPS)
    return of_step
