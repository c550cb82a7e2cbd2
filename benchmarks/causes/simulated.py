"""How exactly the causes of simulated jobs are named, and their gains: against the same jobs without them.

Jobs without devices have one to four ranks, each with one drawn cause. Loops on a device load data, and have other code
after each step.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import BenchmarkRow
from benchmarks.causes import error_rows
from otel_zernel_libraries.training.causes import Job, JobAnswer, answer_on
from otel_zernel_libraries.training.device import device_use
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_processors.phases.config import PhasesConfig
from otel_zernel_processors.phases.emit.answers import ANSWERS_NS
from tests.libraries.training.causes.planted import Planted, draw
from tests.libraries.training.causes.simulated import HEALTHY, Plan, job_on_device, simulated, step_of, with_operators
from tests.libraries.training.device.simulated import drawn, simulate

DRAWS, SEED = 8, 28
HEALTHY_JOBS, RUNS = 10, 5
LOOPS = 16
RANKS, SECONDS, STEP, LIMIT = 8, 60.0, 0.04, 0.5
RANKS_IN_RUN, LIMIT_IN_RUN = (1, 8), 0.002


def run() -> list[BenchmarkRow]:
    return [*_simulated(), *_on_devices(), *_healthy(), _cost(), *map(_cost_in_run, RANKS_IN_RUN)]


def _simulated() -> Iterator[BenchmarkRow]:
    errors, leads, inside, count = [], 0, 0, 0
    wrong: list[str] = []
    for number in range(DRAWS):
        for planted in draw(random.Random(SEED * 1_000 + number)):
            answer = answer_on(simulated(planted.job, seed=number))
            assert answer
            truth = answer.step - step_of(planted.without, seed=number)
            count += 1
            lead = answer.causes[0] if answer.causes else None
            if is_right(planted, answer):
                leads += 1
            elif truth >= 0.04 * answer.step:
                wrong.append(f"{planted.name}: {lead.cause if lead else 'nothing'}")
            else:
                leads += 1  # too small to be named
                continue
            gain = next((cause for cause in answer.causes if cause.cause is planted.name), None)
            errors.append(abs((gain.gain if gain else 0.0) - truth) / answer.step)
            inside += bool(
                gain and gain.gain_low - 0.005 * answer.step <= truth <= gain.gain_high + 0.005 * answer.step
            )
    yield from error_rows("causes: simulated", errors)
    yield BenchmarkRow("causes: simulated, the lead is right", f"{leads} of {count}", "all", leads == count)
    yield BenchmarkRow("causes: simulated, truth in the bounds", f"{inside} of {len(errors)}")
    for text in sorted(set(wrong)):
        yield BenchmarkRow("causes: simulated, wrong lead", f"{text} ({wrong.count(text)})")


def is_right(planted: Planted, answer: JobAnswer) -> bool:
    """Whether the first cause is the planted one."""
    if not answer.causes:
        return False
    lead = answer.causes[0]
    return lead.cause is planted.name and (planted.rank is None or lead.rank == planted.rank)


def _on_devices() -> Iterator[BenchmarkRow]:
    errors, refused, count = [], 0, 0
    for number, (loop, run) in enumerate(drawn(LOOPS, SEED)):
        use = device_use([with_operators(part) for part in run.segments], run.busy_share)
        answer = answer_on(job_on_device(loop, use)) if use else None
        count += 1
        if answer is None or answer.unknown:
            refused += 1
            continue
        for position in (Position.LOAD, Position.AFTER_STEP):
            before, without = (simulate(job, random.Random(number)).seconds for job in (loop, loop.without(position)))
            gain = sum(cause.share for cause in answer.causes if cause.position is position)
            errors.append(abs(gain - (1 - without / before)))
    yield from error_rows("causes: simulated devices", errors)
    yield BenchmarkRow("causes: simulated devices, without an answer", f"{refused} of {count}")


def _healthy() -> Iterator[BenchmarkRow]:
    quiet = 0
    for number in range(HEALTHY_JOBS):
        answer = answer_on(simulated(Plan(HEALTHY, ranks=1 + number % 4, transfer=0.0001), seed=number))
        quiet += bool(answer and not answer.causes)
    yield BenchmarkRow("causes: simulated, nothing wrong", f"{quiet} of {HEALTHY_JOBS}", "all", quiet == HEALTHY_JOBS)


def _cost() -> BenchmarkRow:
    parts = tuple(part for planted in draw(random.Random(SEED)) for part in planted.job.parts[len(HEALTHY) :])
    small = tuple(replace(part, seconds=part.seconds / len(parts)) for part in parts)
    job = simulated(Plan((*HEALTHY, *small), ranks=RANKS, steps=round(SECONDS / STEP), transfer=0.001))
    began = time.thread_time()
    answer_on(job)
    cost = time.thread_time() - began
    return BenchmarkRow("causes: 60 s of 8 ranks, CPU time", f"{cost:.2f} s", f"< {LIMIT} s", cost < LIMIT)


def _cost_in_run(ranks: int) -> BenchmarkRow:
    """The answers of `phases` in a collector: a new one every few seconds, on the steps of its window."""
    seen = simulated(Plan(HEALTHY, ranks=ranks, steps=round(PhasesConfig().window / STEP), transfer=0.001))
    began = time.thread_time()
    for _ in range(RUNS):
        answer_on(Job(seen.ranks, seen.times, seen.expected))
    share = (time.thread_time() - began) / RUNS / (ANSWERS_NS / 1e9) / ranks
    name = f"causes: answers in run, {ranks} rank{'s' * (ranks > 1)}"
    value, bar = f"{share:.3%} of a core a rank", f"< {LIMIT_IN_RUN:.1%}"
    return BenchmarkRow(name, value, bar, share < LIMIT_IN_RUN)
