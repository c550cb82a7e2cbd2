"""The lists of tests for emulated kernels name tests that exist."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

from tests.kernels.acceptance import FULL, SHORT
from tests.kernels.conditions import CONDITIONS

ROOT = Path(__file__).parents[2]


def test_every_listed_test_exists() -> None:
    listed = sorted({*SHORT, *FULL, *chain.from_iterable(condition.tests for condition in CONDITIONS)})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *listed]
    collected = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout + collected.stderr
