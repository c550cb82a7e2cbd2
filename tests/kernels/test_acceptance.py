"""The lists of tests for emulated kernels name tests that exist."""

import subprocess
import sys
from pathlib import Path

from tests.kernels.acceptance import FULL, SHORT
from tests.kernels.conditions import CONDITIONS

ROOT = Path(__file__).parents[2]


def test_every_listed_test_exists() -> None:
    """Beside its whole file, pytest passes over a name that does not exist."""
    listed = {*SHORT, *FULL, *(name for condition in CONDITIONS for name in condition.tests)}
    files = {name.partition("::")[0] for name in listed}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)]
    collected = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    ids = set(collected.stdout.splitlines())
    assert listed - files - ids - {id_.partition("[")[0] for id_ in ids} == set()
