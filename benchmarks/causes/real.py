"""How exactly the causes of real jobs on the CPU are named, and their gains: each runs with and without its cause.

`python -m benchmarks.causes.real [NAME ...]` tries the named jobs only. The jobs run under the eBPF receiver (as root).
Their truth is their own clock, in pairs of neighbouring blocks of steps with and without the cause. The machine must be
quiet: a row shows the standard error of the truth.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks import BenchmarkRow
from benchmarks.causes import PYTHON, count_row, error_rows, print_rows, tried
from benchmarks.training.runs import Run, Truth, live_planted
from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_libraries.training.causes import Cause, CauseName, JobAnswer
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.state import TrainingState
from otel_zernel_processors.phases import PhasesProcessor


@dataclass(frozen=True)
class Planted:
    """How the answer names a planted cause."""

    names: Sequence[CauseName]
    position: Position | None
    """None: any."""
    advice: str
    """A part of its first advice."""
    ranks: int = 1
    rank: int | None = None
    steps: int = 160


_SEGMENT: Final = (CauseName.SEGMENT,)
_PERIODIC: Final = (CauseName.PERIODIC,)
REAL: Final[Mapping[str, Planted]] = {
    "tokenizer in the loop": Planted(_SEGMENT, Position.LOAD, "worker processes"),
    "collate in the main process": Planted(_SEGMENT, Position.LOAD, "worker processes"),
    "samples that sleep": Planted(_SEGMENT, Position.LOAD, "worker processes"),
    "sleep in the forward pass": Planted(_SEGMENT, Position.FORWARD, "sleep"),
    "Python in the forward pass": Planted(_SEGMENT, Position.FORWARD, "Python code"),
    "metric before the backward pass": Planted(_SEGMENT, Position.FORWARD, "Python code"),
    "metric after the step": Planted(_SEGMENT, Position.AFTER_STEP, "every few steps"),
    "sleep after the step": Planted(_SEGMENT, Position.AFTER_STEP, "sleep"),
    "file written after the step": Planted(_SEGMENT, Position.AFTER_STEP, "every few steps"),
    "log sent after the step": Planted(_SEGMENT, Position.AFTER_STEP, "another thread"),
    "database after the step": Planted(_SEGMENT, Position.AFTER_STEP, "every few steps"),
    "norms of gradients": Planted(_SEGMENT, Position.CLIP, "every few steps"),
    "gradients checked for NaN": Planted(_SEGMENT, Position.CLIP, "every few steps"),
    "write every 20 steps": Planted(_PERIODIC, Position.AFTER_STEP, "less often"),
    "Python every 25 steps": Planted(_PERIODIC, Position.AFTER_STEP, "less often", steps=200),
    "checkpoint every 20 steps": Planted((CauseName.CHECKPOINT,), Position.CHECKPOINT, "background"),
    "evaluation every 50 steps": Planted((CauseName.EVALUATION,), Position.EVALUATION, "less often", steps=300),
    "garbage collection": Planted((CauseName.SLOW_STEPS,), Position.AFTER_STEP, "gc.freeze", steps=200),
    "average of the weights": Planted(_SEGMENT, Position.AVERAGE, "_foreach_lerp_"),
    "growing list": Planted((CauseName.GROWTH,), Position.AFTER_STEP, "list", steps=300),
    "growing graph": Planted((CauseName.GROWTH,), Position.BACKWARD, "list", steps=200),
    "first batch of an epoch": Planted((CauseName.FIRST_OF_EPOCH,), Position.LOAD, "sampler", steps=200),
    "workers restarted": Planted((CauseName.WORKERS_RESTART,), Position.LOAD, "persistent_workers", steps=200),
    "iterator per step": Planted((CauseName.ITERATOR_PER_STEP,), Position.LOAD, "iterator once"),
    "another Python thread": Planted((CauseName.GIL,), None, "process of its own"),
    "sleep on rank 1": Planted((CauseName.STRAGGLER,), Position.FORWARD, "same work", ranks=2, rank=1),
    "Python on rank 1": Planted((CauseName.STRAGGLER,), Position.LOAD, "same work", ranks=2, rank=1),
    "ranks late in turns": Planted((CauseName.IMBALANCE,), None, "similar length", ranks=2),
    "gradients exchanged while they accumulate": Planted(
        (CauseName.EXTRA_COLLECTIVES,), Position.BACKWARD, "no_sync", ranks=2, steps=240
    ),
    "small collectives": Planted((CauseName.SMALL_COLLECTIVES,), None, "Join them", ranks=2),
    "garbage collected in each step": Planted(_SEGMENT, Position.AFTER_STEP, "every few steps"),
    "command in each step": Planted(_SEGMENT, Position.AFTER_STEP, "Start this program less often"),
    "histograms of the weights": Planted(_SEGMENT, Position.AFTER_STEP, "every few steps"),
    "copy of the state": Planted(_SEGMENT, Position.AFTER_STEP, "every few steps"),
    "log to a slow reader": Planted(_SEGMENT, Position.AFTER_STEP, "another thread"),
    "samples taken one by one": Planted(_SEGMENT, Position.LOAD, "a whole batch"),
    "many tensors of a batch": Planted(_SEGMENT, Position.LOAD, "one tensor for a whole batch"),
    "shuffle buffer of workers that stay": Planted((CauseName.FIRST_OF_EPOCH,), Position.LOAD, "buffer", steps=200),
    "anomaly mode": Planted(_SEGMENT, None, "anomaly mode off"),
    "many small parameters": Planted(_SEGMENT, Position.OPTIMIZER, "fused=True"),
    "log on rank 0 every 10 steps": Planted(_PERIODIC, Position.AFTER_STEP, "less often", ranks=2, rank=0),
    "few collectives": Planted((CauseName.SMALL_COLLECTIVES,), Position.AFTER_STEP, "Join them", ranks=2),
    "objects gathered in each step": Planted(
        (CauseName.SMALL_COLLECTIVES, CauseName.SEGMENT), Position.AFTER_STEP, "every few steps", ranks=2
    ),
    "evaluation on rank 0": Planted(
        (CauseName.EVALUATION,), Position.EVALUATION, "less often", ranks=2, rank=0, steps=300
    ),
    "checkpoint on rank 0": Planted((CauseName.CHECKPOINT,), Position.CHECKPOINT, "background", ranks=2, rank=0),
}
"""By planted cause."""
PAIRS: Final = (
    "tokenizer in the loop and metric after the step",
    "collate in the main process and log sent after the step",
    "samples that sleep and metric before the backward pass",
    "sleep in the forward pass and Python every 25 steps",
    "sleep after the step and checkpoint every 20 steps",
    "average of the weights and metric before the backward pass",
    "evaluation every 50 steps and metric after the step",
    "file written after the step and tokenizer in the loop",
    "sleep on rank 1 and metric after the step",
    "evaluation on rank 0 and sleep in the forward pass",
)
HEALTHY: Final = {
    "nothing": 1,
    "nothing, with workers": 1,
    "nothing, on 2 ranks": 2,
    "nothing, accumulating": 1,
    "nothing, clipping": 1,
}
"""The ranks of jobs without a cause."""
JOBS: Final = (*REAL, *PAIRS, *HEALTHY)
OF_MACHINE: Final = frozenset({CauseName.CPU_TAKEN, CauseName.THREADS})
"""True causes of a healthy job: other programs, or its ranks, want to run on its CPUs."""
_AND: Final = " and "
_ALIKE: Final = 0.01
"""Gains of two causes that differ by less may come in either order."""
_DEVIATION, _ERROR_OF_MEDIAN = 1.4826, 1.2533
"""Of normal errors: the standard deviation by the median deviation, and the error of a median by that of a mean."""
_VISIBLE: Final = 0.03
"""Smaller causes are not named."""


@dataclass(frozen=True)
class TriedJob:
    """What the answer on a job says of its planted causes, and what is true."""

    name: str
    answer: JobAnswer | None
    truths: Mapping[str, float]
    """By planted cause: its gain, by the step."""
    noise: float
    """The standard error of the truths, at most, by the step."""

    def cause(self, planted: str) -> Cause | None:
        """The first cause of the answer that is the planted one."""
        return next((cause for cause in (self.answer.causes if self.answer else ()) if _is(planted, cause)), None)

    @property
    def errors(self) -> list[float]:
        """Of the gains."""
        named = [(truth, self.cause(planted)) for planted, truth in self.truths.items() if planted in REAL]
        return [abs((cause.share if cause else 0.0) - truth) for truth, cause in named]

    @property
    def is_valid(self) -> bool:
        """Whether the job really is faster without its causes, by more than the noise."""
        return self.name in HEALTHY or min(self.truths.values()) > max(_VISIBLE, 2 * self.noise)

    @property
    def lead_is_right(self) -> bool:
        """Whether the first cause is a planted one, and the larger one of two."""
        if self.answer and self.name in HEALTHY:
            return all(cause.cause in OF_MACHINE for cause in self.answer.causes)
        if self.answer is None or not self.answer.causes:
            return False
        largest = max(self.truths.values())
        leads = [planted for planted, truth in self.truths.items() if truth > largest - _ALIKE]
        return any(_is(planted, self.answer.causes[0]) for planted in leads)

    @property
    def advice_is_right(self) -> bool:
        """Whether the first advice of the lead reaches the place to change."""
        if self.answer is None or not self.answer.causes or self.name in HEALTHY:
            return self.name in HEALTHY
        lead = self.answer.causes[0]
        planted = next((REAL[name] for name in self.truths if name in REAL and _is(name, lead)), None)
        return bool(planted and lead.advice and planted.advice in lead.advice[0])

    @property
    def text(self) -> str:
        """`truth, predicted with its bounds, noise of the truth, lead and first advice`."""
        lead = self.answer.causes[0] if self.answer and self.answer.causes else None
        named = f"{lead.cause}{f'/{lead.position}' if lead.position else ''}" if lead else "nothing"
        said = named if self.answer else "no answer"
        gains = "; ".join(_gain(truth, self.cause(planted)) for planted, truth in self.truths.items())
        marks = [
            *([] if self.is_valid else ["not valid"]),
            *([] if self.lead_is_right else ["WRONG LEAD"]),
            *([] if self.advice_is_right else ["WRONG ADVICE"]),
        ]
        advice = lead.advice[0] if lead and lead.advice else "-"
        return " | ".join([self.name, gains, f"{self.noise:.1%}", said, advice, ", ".join(marks)])


def _gain(truth: float, cause: Cause | None) -> str:
    if cause is None:
        return f"{truth:.1%}: not named"
    bounds = (bound * cause.share / cause.gain for bound in (cause.gain_low, cause.gain_high)) if cause.gain else (0, 0)
    low, high = bounds
    return f"{truth:.1%}: {cause.share:.1%} ({low:.1%} to {high:.1%})"


def _is(planted: str, cause: Cause) -> bool:
    if planted not in REAL:
        return False
    expected = REAL[planted]
    is_there = expected.position is None or cause.position is expected.position
    return cause.cause in expected.names and is_there and expected.rank in (None, cause.rank)


def run() -> Iterator[BenchmarkRow]:
    return rows(JOBS)


def rows(names: Iterable[str]) -> Iterator[BenchmarkRow]:
    """The results of the named jobs."""
    return tried("real jobs", names, lambda name: result_of(name, *watched_plant(name)), judged)


def judged(results: list[TriedJob]) -> Iterator[BenchmarkRow]:
    valid = [result for result in results if result.is_valid]
    errors = [error for result in valid for error in result.errors]
    if errors:
        yield from error_rows("causes: real jobs", errors)
    yield count_row("real jobs, the lead is right", sum(result.lead_is_right for result in valid), len(valid))
    yield count_row("real jobs, the first advice is right", sum(result.advice_is_right for result in valid), len(valid))
    yield count_row("real jobs, faster without the cause", len(valid), len(results))


def watched_plant(name: str) -> Run:
    """Runs a job: what the receiver emits while it runs with its causes, and the truths of its ranks."""
    plants = [REAL[part] for part in name.split(_AND) if part in REAL]
    ranks = max((plant.ranks for plant in plants), default=HEALTHY.get(name, 1))
    steps = max((plant.steps for plant in plants), default=160)
    return live_planted(name, steps, ranks, str(PYTHON))


def result_of(name: str, batches: Iterable[Batch], truths: Sequence[Truth]) -> TriedJob:
    """What the processor answers on a job, beside the truth."""
    config = PhasesProcessor.Config.model_validate({"window": "600s"})
    processor, state = PhasesProcessor(config, make_context("processors", "phases")), TrainingState()
    for batch in batches:
        for out in processor.process(batch.copy()):
            state.add(out, 0.0)
    for out in processor.flush():
        state.add(out, 0.0)
    alone = len(truths) == 1
    candidates = [part.answer for part in (state.processes if alone else state.jobs)]
    answers = [answer for answer in candidates if answer and not answer.unknown]
    measured: Mapping[str, Sequence[float]] = truths[0]["gains"]
    gains = {planted: statistics.median(of_pairs) for planted, of_pairs in measured.items()}
    noise = max(_noise(of_pairs) for of_pairs in measured.values())
    return TriedJob(name, answers[0] if answers else None, gains, noise)


def _noise(of_pairs: Sequence[float]) -> float:
    """The standard error of the median of pairs. One pause of the machine is no noise."""
    middle = statistics.median(of_pairs)
    spread = statistics.median(abs(gain - middle) for gain in of_pairs)
    return _ERROR_OF_MEDIAN * _DEVIATION * spread / math.sqrt(len(of_pairs))


if __name__ == "__main__":
    print_rows(rows, JOBS)
