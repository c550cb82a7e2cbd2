"""Training programs on real frameworks: the live phases agree with the programs' own logs."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from benchmarks.training.runs import Run
from tests.frameworks.programs import PROGRAMS, SCORED
from tests.frameworks.running import TORCH, require_frameworks, run
from tests.frameworks.scoring import Score, lines, scores
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, versions
from tests.receivers.ebpf.watching import require_ebpf
from tests.waiting import measured

BUSY = 0.9
"""The agreement on a busy machine, where other work runs between the program's own clock and a probe. The floors of the
programs are for a quiet one."""


def _marked(name: str, *marks: pytest.MarkDecorator) -> Any:
    """A program as a parameter. One that does not agree yet must fail."""
    fails = SCORED[name].fails
    return pytest.param(name, marks=[*marks, pytest.mark.xfail(reason=fails, strict=True)] if fails else marks)


SHORT = [_marked(name, *([pytest.mark.soak] if program.soak else [])) for name, program in SCORED.items()]


@lru_cache(maxsize=1)
def run_of(job: str, ranks: int, torch: str) -> Run:
    """A run of a job. Programs of the same job, which follow each other, share it."""
    name = next(name for name, program in PROGRAMS.items() if (program.job, program.ranks) == (job, ranks))
    return run(name, torch=torch)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SHORT)
def test_the_phases_agree_with_the_log_of_the_program(name: str) -> None:
    assert_agreement(name, PROGRAMS[name].floor if PROGRAMS[name].fails else BUSY)


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [*map(_marked, SCORED)])
def test_on_a_quiet_machine_the_phases_agree_up_to_the_floor(name: str) -> None:
    assert_agreement(name, PROGRAMS[name].floor)


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [_marked(name) for name, program in SCORED.items() if program.package == "torch"])
@pytest.mark.parametrize("torch", [version for version in versions() if version not in (OWN, TORCH)])
def test_on_other_versions_of_pytorch_the_phases_agree_up_to_the_floor(torch: str, name: str) -> None:
    assert_agreement(name, PROGRAMS[name].floor, torch)


def assert_agreement(name: str, floor: float, torch: str = TORCH) -> None:
    """Runs the program, and compares the live phases with its log."""
    require_ebpf()
    require_frameworks(torch)
    program = replace(PROGRAMS[name], floor=floor)

    def measure() -> list[Score]:
        return scores(run_of(program.job, program.ranks, torch), program)

    def is_good(found: list[Score]) -> bool:
        agrees = bool(found) and all(one.agrees_with(program) for one in found)
        if not agrees:
            run_of.cache_clear()
        return agrees

    found = measured(measure, is_good, attempts=1 if program.fails else 3)
    report = "\n".join(lines(name, found, program.floor))
    assert found, "the program has no loop"
    assert is_good(found), report
