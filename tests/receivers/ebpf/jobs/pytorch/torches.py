"""The Python interpreters with PyTorch that run the training jobs of the tests.

One is this Python if it has PyTorch, or the one that TORCH_PYTHON names. The others are in .torch/VERSION: versions of
PyTorch that are in use, installed by `make torches` (or by `make peers` with REQUIRE_PEERS=1). With PYTHON=..., make
installs them in .torch-RELEASE, for that Python.
"""

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[5]


def installed_for_this_python(name: str) -> Path:
    """The folder of the Makefile's PYTHON: `NAME-RELEASE` if there is one for this Python, else `NAME`."""
    own = _ROOT / f"{name}-{platform.python_version()}"
    return own if own.exists() else _ROOT / name


INSTALLED = installed_for_this_python(".torch")
OWN = "own"
OLD = "2.6.0"
"""The newest version whose function names have the string ABI from before C++11. Every CI run tests it."""


def versions() -> list[str]:
    """All versions: OWN, OLD even if it is missing, and all others that are installed."""
    return [OWN, *sorted({OLD, *(stamp.parent.name for stamp in INSTALLED.glob("*/.installed"))})]


def python_of(version: str) -> str:
    """The interpreter of a version. Skips the test if it is missing."""
    found = _own_python() if version == OWN else str(INSTALLED / version / "bin/python")
    if os.environ.get("WITHOUT_TORCH") == "1":  # for emulated machines, where it would take an hour
        pytest.skip("WITHOUT_TORCH is 1")
    if found is None or not Path(found).exists():
        which = "PyTorch" if version == OWN else f"PyTorch {version}"
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)(f"{which} is not installed")
    return found


@functools.cache
def _own_python() -> str | None:
    for python in (sys.executable, os.environ.get("TORCH_PYTHON")):
        if python and not subprocess.run([python, "-c", "import torch"], check=False, capture_output=True).returncode:
            return python
    return None


@pytest.fixture(
    scope="module",
    params=[pytest.param(version, marks=[] if version in (OWN, OLD) else [pytest.mark.soak]) for version in versions()],
)
def python(request: pytest.FixtureRequest) -> str:
    """Each interpreter with PyTorch in turn. Versions other than OWN and OLD are for `make soak`."""
    return python_of(request.param)
