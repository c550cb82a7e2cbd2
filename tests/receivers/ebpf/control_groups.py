"""Control groups that limit the programs of a test."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def control_group(*limits: tuple[str, str, str]) -> Iterator[Path]:
    """A new control group with the first of these limits that can be set: the folder of its hierarchy in
    /sys/fs/cgroup, a file and its text. Skips the test if there is none."""
    for folder, file, text in limits:
        group = Path("/sys/fs/cgroup", folder, f"zernel-test-{os.getpid()}")
        with suppress(OSError):
            group.mkdir()
            (group / file).write_text(text)
            break
        with suppress(OSError):
            group.rmdir()
    else:
        pytest.skip(f"no control group with {limits[0][1]} can be made")
    yield group
    while group.exists():  # the kernel removes the last process a little later
        with suppress(OSError):
            group.rmdir()
        time.sleep(0.01)
