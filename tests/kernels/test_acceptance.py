"""The lists of tests for emulated kernels name tests that exist."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.acceptance import FULL, SHORT
from tests.kernels.conditions import CONDITIONS

ROOT = Path(__file__).parents[2]


_LISTS = dict.fromkeys((SHORT, FULL, *(condition.tests for condition in CONDITIONS if condition.tests)))


@pytest.mark.parametrize("listed", _LISTS)
def test_every_listed_test_exists(listed: tuple[str, ...]) -> None:
    """List by list: beside its whole file, pytest passes over a name that does not exist."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *listed]
    collected = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout + collected.stderr
