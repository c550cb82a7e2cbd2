"""A process turns on what it is permitted, and nothing else changes."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, struct
from otel_zernel.runtime.capabilities import raise_permitted, _sets, _set, _VERSION_3, _WORDS
from pathlib import Path
def sets():
    return _sets(Path("/proc/self/status").read_text())
_, permitted, inheritable = sets()
words = [one >> shift & 0xFFFFFFFF for shift in (0, 32) for one in (0, permitted, inheritable)]
ctypes.CDLL(None).capset(struct.pack("=Ii", _VERSION_3, 0), _WORDS.pack(*words))
assert sets() == (0, permitted, inheritable), sets()
raise_permitted()
assert sets() == (permitted, permitted, inheritable), sets()
print(hex(permitted))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="capabilities are Linux's")
def test_permitted_capabilities_become_effective() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to give few capabilities")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv (Debian: util-linux)")
def test_a_process_gets_no_capability_that_it_is_not_permitted() -> None:
    held = "-all,+bpf,+perfmon"
    command = ["setpriv", f"--bounding-set={held}", f"--inh-caps={held}", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{hex(1 << 39 | 1 << 38)}\n"), done.stderr
