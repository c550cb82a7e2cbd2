"""CPU time that a real training loop spends in known places is found there, as what it is."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.training.runs import Job, Run, watched
from tests.frameworks.running import PYTHON, require_frameworks
from tests.processors.phases.planted.test_planted_waits import segments_in
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.watching import require_ebpf
from tests.waiting import measured

PROGRAM = Path(__file__).with_name("work.py")
KINDS = frozenset({"data_loading", "backward", "operators"})
LEAST = 0.98


def found_in(run: Run) -> Counter[str]:
    """The ns of the loop by position and activity."""
    found = Counter[str]()
    for segment in segments_in(run):
        if segment.start >= run[1][0]["loop"][0]:
            for moment, spent in segment.spent:
                found[f"{moment.position} {moment.activity}"] += spent
    return found


def assert_found(job: Job) -> None:
    found, spent = measured(lambda: times_of(watched(job)), lambda both: is_close(*both))
    assert is_close(found, spent), (found, spent)


def times_of(run: Run) -> tuple[Counter[str], Counter[str]]:
    """The ns found by position and activity, and those that the program spent."""
    return found_in(run), Counter[str](run[1][0]["spent"])


def is_close(found: Counter[str], spent: Counter[str]) -> bool:
    # NumPy begins with Python of its own, which the clock of the program counts as native.
    after_step, true = ([times[f"after_step {of}"] for of in ("python", "native")] for times in (found, spent))
    return (spent & found).total() >= LEAST * spent.total() and after_step == pytest.approx(true, rel=0.25)


def test_samples_divide_the_work_of_a_loop_as_its_own_clock_does() -> None:
    """997 samples a second are as many in ten seconds as the receiver's own rate takes in minutes."""
    require_ebpf()
    assert_found(Job([python_of(OWN), str(PROGRAM), "10"], intervals=KINDS, samples=997))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_default_rate_divides_the_work_of_a_loop_after_some_minutes() -> None:
    """With a tokenizer."""
    require_ebpf()
    require_frameworks()
    assert_found(Job([str(PYTHON), str(PROGRAM), "300"], intervals=KINDS))
