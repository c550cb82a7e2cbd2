"""The versions of Python on this machine: on the PATH, or installed by pyenv or by tests/interop."""

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.installed import installed_peer, peer_folder

MINORS = (9, 10, 11, 12, 13, 14)
"""The supported versions 3.x."""


def python_of(minor: int) -> str:
    """An interpreter of Python 3.`minor`. Skips the test if none is installed."""
    python = _find(minor)
    if not python:
        pytest.skip(f"Python 3.{minor} is not installed")
    return python


def python_on_musl() -> str:
    """A Python on musl (install-musl-python.sh). Skips the test without one."""
    return str(installed_peer("python-3.11-musl", "Python on musl", "soak") / "python")


def installed() -> dict[int, str]:
    """The interpreters of the supported versions 3.x that are installed, by x."""
    return {minor: python for minor in MINORS if (python := _find(minor))}


@functools.cache
def _find(minor: int) -> str | None:
    versions = _pyenv_root() / "versions"
    candidates = [
        f"python3.{minor}",
        *map(str, versions.glob(f"3.{minor}.*/bin/python3")),
        str(peer_folder(f"python-3.{minor}") / "usr/bin" / f"python3.{minor}"),
    ]
    check = f"import sys; assert sys.version_info[:2] == (3, {minor})"
    for python in filter(None, map(shutil.which, candidates)):
        if not subprocess.run([python, "-c", check], check=False, capture_output=True).returncode:
            return python
    return None


@functools.cache
def _pyenv_root() -> Path:
    if not shutil.which("pyenv"):
        return Path("/nonexistent")
    return Path(subprocess.check_output(["pyenv", "root"], text=True).strip())
