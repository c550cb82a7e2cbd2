"""Whether the bounds of gains contain the truth while other programs use a part of each CPU.

`python -m benchmarks.causes.neighbour [NAME ...]` runs ten planted jobs of `benchmarks.causes.real`, or the named ones,
beside programs that run in turns with them. The truth is measured beside the same programs. Nothing else may run: a job
whose truth is noise, because other programs come and go, does not count.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks import BenchmarkRow
from benchmarks.causes import print_rows, tried
from benchmarks.causes.real import TriedJob, result_of, watched_plant

JOBS: Final = (
    "tokenizer in the loop",
    "collate in the main process",
    "sleep in the forward pass",
    "metric before the backward pass",
    "metric after the step",
    "log sent after the step",
    "checkpoint every 20 steps",
    "average of the weights",
    "another Python thread",
    "sleep on rank 1",
)
PART: Final = 1 / 3
"""The part of a CPU that each program wants."""
LONGEST_TURN: Final = 0.06
"""Seconds."""
INSIDE: Final = 0.9
"""The bar: the part of the jobs whose truth is within the bounds."""


def run() -> Iterator[BenchmarkRow]:
    return rows(JOBS)


def rows(names: Iterable[str]) -> Iterator[BenchmarkRow]:
    """The results of the named jobs."""
    return tried("beside a neighbour", names, beside_others, judged)


def beside_others(name: str) -> TriedJob:
    """Runs a job beside other programs."""
    with neighbours():
        return result_of(name, *watched_plant(name))


def judged(results: list[TriedJob]) -> Iterator[BenchmarkRow]:
    measured = [result for result in results if result.is_valid]
    inside = sum(_is_inside(result, 0.0) for result in measured)
    near = sum(_is_inside(result, 2.0) for result in measured)
    text = f"{inside} of {len(measured)}; {near} with the noise of the truth"
    is_met = inside >= INSIDE * len(results)
    yield BenchmarkRow("causes: beside a neighbour, truth in the bounds", text, ">= 9 of 10", is_met)


def _is_inside(result: TriedJob, errors: float) -> bool:
    """Whether the bounds contain all truths, within so many standard errors of each."""
    room = errors * result.noise
    for planted, truth in result.truths.items():
        cause = result.cause(planted)
        if cause is None or not cause.gain:
            return False
        step = cause.gain / cause.share
        if not cause.gain_low / step - room <= truth <= cause.gain_high / step + room:
            return False
    return True


@contextmanager
def neighbours() -> Iterator[None]:
    """Other programs, one on each CPU, until the end of the block."""
    spawn = multiprocessing.get_context("spawn")
    started = [spawn.Process(target=_take, args=(cpu,), daemon=True) for cpu in os.sched_getaffinity(0)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def _take(cpu: int) -> None:
    """Runs for turns of different lengths, and sleeps between them."""
    os.sched_setaffinity(0, {cpu})
    drawn = random.Random(cpu)
    while True:
        turn = drawn.uniform(0.0, LONGEST_TURN)
        end = time.thread_time() + turn
        while time.thread_time() < end:
            pass
        time.sleep(turn * (1 / PART - 1))


if __name__ == "__main__":
    print_rows(rows, JOBS)
