"""Runs the collector as a user without root who holds only some capabilities."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest


@contextmanager
def collector_with(capabilities: Sequence[str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The collector with these capabilities (`CAP_BPF`) and no others. Its stdout is a pipe, which stderr shares."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give the collector single capabilities")
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (Debian: util-linux)")
    held = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)
    limits = ["--inh-caps", held, "--ambient-caps", held, "--bounding-set", f"-all,{held}", "--no-new-privs"]
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *limits]
    collector = [sys.executable, "-m", "otel_zernel", *arguments]
    with subprocess.Popen(
        [*command, *collector], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
