"""How exactly the causes of real jobs on the CPU are named, and their gains: each runs with and without its cause.

The jobs run under the eBPF receiver (as root). Their truth is their own clock. The machine must be quiet: a row shows
how far two runs without the cause differ.
"""

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchmarks import BenchmarkRow
from benchmarks.causes import error_rows
from benchmarks.training.runs import live_planted
from otel_zernel.testing import make_context
from otel_zernel_libraries.training.causes import CauseName, JobAnswer
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.state import TrainingState
from otel_zernel_processors.phases import PhasesProcessor

SEGMENT: Final = (CauseName.SEGMENT,)
RARE: Final = (CauseName.PERIODIC, CauseName.SLOW_STEPS)
FIRST: Final = (CauseName.FIRST_OF_EPOCH,)
REAL: Final[Mapping[str, tuple[Sequence[CauseName], Position]]] = {
    "tokenizer in the loop": (SEGMENT, Position.LOAD),
    "collate in the main process": (SEGMENT, Position.LOAD),
    "samples that sleep": (SEGMENT, Position.LOAD),
    "sleep in the forward pass": (SEGMENT, Position.FORWARD),
    "metric before the backward pass": (SEGMENT, Position.FORWARD),
    "metric after the step": (SEGMENT, Position.AFTER_STEP),
    "sleep after the step": (SEGMENT, Position.AFTER_STEP),
    "write every 20 steps": (RARE, Position.AFTER_STEP),
    "Python every 25 steps": (RARE, Position.AFTER_STEP),
    "first batch of an epoch": (FIRST, Position.LOAD),
    "growing list": ((CauseName.GROWTH,), Position.AFTER_STEP),
}
"""By planted cause: its names and its position."""
STEPS = 300


def run() -> Iterator[BenchmarkRow]:
    if importlib.util.find_spec("torch") is None or os.geteuid() != 0:
        yield BenchmarkRow("causes: real jobs", "needs torch and root")
        return
    errors, right = [], 0
    for planted, (names, position) in REAL.items():
        before, answer = _watched("nothing")[0], _watched(planted)
        after = _watched("nothing")[0]
        took, said = answer
        truth = (took - (before + after) / 2) / took
        gains = [one for one in said.causes if one.cause in names and one.position in (position, None)] if said else []
        gain = sum(one.share for one in gains)
        lead = said.causes[0] if said and said.causes else None
        right += lead in gains
        errors.append(abs(gain - truth))
        drift = abs(before - after) / took
        text = f"{gain:.1%} for {truth:.1%}, drift {drift:.1%}, lead {lead.cause if lead else 'nothing'}"
        yield BenchmarkRow(f"causes: {planted}", text)
    yield from error_rows("causes: real jobs", errors)
    yield BenchmarkRow("causes: real jobs, the lead is right", f"{right} of {len(REAL)}", "all", right == len(REAL))


def _watched(cause: str) -> tuple[float, JobAnswer | None]:
    """The mean seconds of a step by the job's own clock, and the answer on it."""
    batches, (truth,) = live_planted(cause, STEPS)
    config = PhasesProcessor.Config.model_validate({"window": "600s"})
    processor, state = PhasesProcessor(config, make_context("processors", "phases")), TrainingState()
    for batch in batches:
        for out in processor.process(batch.copy()):
            state.add(out, 0.0)
    for out in processor.flush():
        state.add(out, 0.0)
    loop = truth["loop"]
    answers = [one.answer for one in state.processes if one.pid == truth["pid"]]
    return (loop[-1] - loop[0]) / (len(loop) - 1) / 1e9, answers[0] if answers else None
