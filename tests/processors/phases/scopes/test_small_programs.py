"""Small programs that wait in known places have the positions and the activities of their own clocks."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from otel_zernel_libraries.training.ledger import Activity, Position, Segment
from tests.processors.phases.scopes.small_programs import LIMITS, PROGRAMS, STEPS, Part, Program, Step

LEAST = 0.98
SEEDS = range(3)
WRONG = [
    pytest.param(step, id=name, marks=pytest.mark.xfail(reason="no fact shows its place", strict=True))
    for name, step in LIMITS.items()
]
Ledger = Counter[tuple[Position, Activity]]
"""ns by position and activity."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("step", [*(pytest.param(step, id=name) for name, step in PROGRAMS.items()), *WRONG])
def test_a_small_program_has_the_ledger_of_its_own_clock(step: Step, seed: int) -> None:
    program = Program(Random(seed))
    for _ in range(STEPS):
        step(program)
    steps = [closed for closed in program.thread.closed()[1:] if closed.step.kind != "unfinished"]
    segments = [segment for closed in steps for segment in closed.attribution.segments]
    truth = within(program.truth, segments[0].start, segments[-1].end)
    whole = sum(part.end - part.start for part in truth)
    assert whole > 0.8 * (program.truth[-1].end - program.truth[0].start)
    wrong = wrong_positions(segments, truth)
    assert wrong.total() <= (1 - LEAST) * whole, wrong
    true, found = ledger_of_parts(truth), ledger_of_segments(segments)
    assert (true - found).total() <= (1 - LEAST) * whole, (true - found, found - true)


def within(truth: Sequence[Part], start: int, end: int) -> list[Part]:
    """The parts in [start, end) ns. Steps begin and end where parts do."""
    return [part for part in truth if start <= part.start and part.end <= end]


def wrong_positions(segments: Sequence[Segment], truth: Sequence[Part]) -> Counter[tuple[Position, Position]]:
    """ns by the true position and the one that was found instead."""
    wrong: Counter[tuple[Position, Position]] = Counter()
    at = 0
    for part in truth:
        while segments[at].end <= part.start:
            at += 1
        for segment in segments[at:]:
            if segment.start >= part.end:
                break
            if segment.position is not part.position:
                both = min(part.end, segment.end) - max(part.start, segment.start)
                wrong[part.position, segment.position] += both
    return wrong


def ledger_of_parts(truth: Sequence[Part]) -> Ledger:
    ledger: Ledger = Counter()
    for part in truth:
        for activity, spent in part.spent.items():
            ledger[part.position, activity] += spent
    return ledger


def ledger_of_segments(segments: Sequence[Segment]) -> Ledger:
    ledger: Ledger = Counter()
    for segment in segments:
        for moment, spent in segment.spent:
            ledger[moment.position, moment.activity] += spent
    return ledger
