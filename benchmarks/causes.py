"""How exactly the causes of a job are named, and their gains: against the same jobs without them.

Jobs without devices are simulated on one to four ranks, each with one drawn cause, and again without it.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from benchmarks import BenchmarkRow
from otel_zernel_libraries.training.causes import JobAnswer, answer_on
from tests.libraries.training.causes.planted import Planted, draw
from tests.libraries.training.causes.simulated import HEALTHY, Plan, simulated, step_of

DRAWS, SEED = 8, 28
HEALTHY_JOBS = 10
MEDIAN, P90, WORST = 0.01, 0.03, 0.06
"""The bars: the error of a gain, by the step."""
RANKS, SECONDS, STEP, LIMIT = 8, 60.0, 0.04, 0.5


def run() -> list[BenchmarkRow]:
    return [*_simulated(), *_healthy(), _cost()]


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
            gain = next((one for one in answer.causes if one.cause is planted.name), None)
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


def error_rows(name: str, errors: Sequence[float]) -> Iterator[BenchmarkRow]:
    """The errors of gains, by the step."""
    ordered = sorted(errors)
    values = median(ordered), ordered[int(0.9 * len(ordered))], ordered[-1]
    for bar, value, limit in zip(("median", "p90", "worst"), values, (MEDIAN, P90, WORST), strict=True):
        yield BenchmarkRow(f"{name}, {bar} error of the gain", f"{value:.2%}", f"<= {limit:.0%}", value <= limit)


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
