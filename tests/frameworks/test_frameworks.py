"""Training programs on real frameworks: the live phases agree with the programs' own logs."""

import pytest

from tests.frameworks.programs import PROGRAMS
from tests.frameworks.running import require_frameworks, run
from tests.frameworks.scoring import lines, scores
from tests.receivers.ebpf.watching import require_ebpf

TRIES = 3
"""Attempts: other work on the machine runs between the program's own clock and a probe."""
SHORT = [pytest.param(name, marks=[pytest.mark.soak] if program.soak else []) for name, program in PROGRAMS.items()]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SHORT)
def test_the_phases_agree_with_the_log_of_the_program(name: str) -> None:
    require_ebpf()
    require_frameworks()
    program, report = PROGRAMS[name], ""
    for _ in range(TRIES):
        found = scores(run(name), program)
        report += "\n".join(lines(name, found, program.floor)) + "\n"
        if found and all(one.agreement >= program.floor and one.has_all_steps for one in found):
            return
    pytest.fail(report)
