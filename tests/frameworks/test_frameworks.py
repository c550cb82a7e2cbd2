"""Training programs on real frameworks: the live phases agree with the programs' own logs."""

from dataclasses import replace
from functools import lru_cache

import pytest

from benchmarks.training.runs import Run
from tests.frameworks.programs import PROGRAMS, SCORED
from tests.frameworks.running import require_frameworks, run
from tests.frameworks.scoring import lines, scores
from tests.receivers.ebpf.watching import require_ebpf

TRIES = 3
"""Attempts: other work on the machine runs between the program's own clock and a probe."""
BUSY = 0.9
"""The agreement on a busy machine. The floors of the programs are for a quiet one."""
SHORT = [pytest.param(name, marks=[pytest.mark.soak] if program.soak else []) for name, program in SCORED.items()]


@lru_cache(maxsize=1)
def run_of(job: str, ranks: int, attempt: int) -> Run:
    """An attempt at a job. Programs of the same job, which follow each other, share it."""
    del attempt
    return run(next(name for name, program in PROGRAMS.items() if (program.job, program.ranks) == (job, ranks)))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SHORT)
def test_the_phases_agree_with_the_log_of_the_program(name: str) -> None:
    assert_agreement(name, BUSY)


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SCORED)
def test_on_a_quiet_machine_the_phases_agree_up_to_the_floor(name: str) -> None:
    assert_agreement(name, PROGRAMS[name].floor)


def assert_agreement(name: str, floor: float) -> None:
    """Runs the program, and compares the live phases with its log."""
    require_ebpf()
    require_frameworks()
    program, report = replace(PROGRAMS[name], floor=floor), ""
    for attempt in range(TRIES):
        found = scores(run_of(program.job, program.ranks, attempt), program)
        report += "\n".join(lines(name, found, program.floor)) + "\n"
        if found and all(one.agrees_with(program) for one in found):
            return
    pytest.fail(report)
