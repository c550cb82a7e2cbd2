"""Starts keepers as children of this process."""

import os
import sys
from pathlib import Path
from typing import Final

from otel_zernel_extensions.tasks.engines.local import keeper

CLAIMED: Final = b"claimed\n"
"""The answer of a keeper that works."""


def started_keeper(folder: Path) -> tuple[int, bytes]:
    """Starts the keeper of a task. Returns its pid and its answer, as soon as it has answered. Raises `OSError`."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", keeper.__file__, str(folder)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123  # not a path
        return pid, pipe.read()


def has_left(pid: int) -> bool:
    """Whether a child has ended. If so, it is not in the table of processes any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
