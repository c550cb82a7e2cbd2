"""The start of a job that began during the watch."""

import pytest

from otel_zernel_commands.why.findings.reporting import start_of
from otel_zernel_libraries.training.state import SeenProcess
from otel_zernel_libraries.training.steps import StepBar

CREATED = 1_767_225_600  # 2026-01-01T00:00:00Z
MS = 1_000_000


def process(*durations_ms: int, first_after_s: float = 5.0) -> SeenProcess:
    """A process whose steps have these durations."""
    found = SeenProcess({"process.creation.time": "2026-01-01T00:00:00+00:00"})
    at = round((CREATED + first_after_s) * 1e9)
    for number, duration in enumerate(durations_ms, 1):
        found.bars.add(StepBar(at, at + duration * MS, "training", number, (0, duration * MS, 0, 0, 0)))
        at += duration * MS
    return found


def test_the_first_steps_that_take_longer_are_the_warm_up() -> None:
    start = start_of([process(900, 80, 40, 40, 40, 40, 100)], since_ns=CREATED * 10**9)
    assert start is not None
    assert start.first_step_after == pytest.approx(5)
    assert start.first_step == pytest.approx(0.9)
    assert start.warm_up_steps == 2
    assert start.warm_up == pytest.approx(0.9)


def test_a_job_without_warm_up_has_none() -> None:
    start = start_of([process(40, 40, 40)], since_ns=0)
    assert start is not None
    assert (start.warm_up_steps, start.warm_up) == (0, 0)


def test_the_start_of_a_job_is_that_of_its_last_rank() -> None:
    start = start_of([process(40, 40, 40), process(40, 40, 40, first_after_s=7)], since_ns=0)
    assert start is not None
    assert start.first_step_after == pytest.approx(7)


def test_the_start_of_a_held_program_is_its_release() -> None:
    start = start_of([process(40, 40, 40)], since_ns=0, program_ns=(CREATED + 3) * 10**9)
    assert start is not None
    assert start.first_step_after == pytest.approx(2)


def test_a_job_that_began_before_the_watch_has_no_start() -> None:
    assert start_of([process(40, 40, 40)], since_ns=(CREATED + 1) * 10**9) is None
    assert start_of([process(40)], since_ns=0) is None
    assert start_of([SeenProcess({})], since_ns=0) is None
