"""Processes of this machine, as /proc shows them."""

from collections.abc import Iterator
from pathlib import Path

import psutil

_LONGEST_COMMAND = 64
"""Words of a command line that are kept."""
_LONGEST_WORD = 512
"""Characters of each."""


def command_of(pid: int) -> tuple[str, ...]:
    """The first words of its command line; empty if it has ended or cannot be read."""
    try:
        return tuple(word[:_LONGEST_WORD] for word in psutil.Process(pid).cmdline()[:_LONGEST_COMMAND])
    except (psutil.Error, OSError):
        return ()


def ancestors_of(pid: int) -> tuple[int, ...]:
    """Its parent, grandparent and so on; empty if it has ended."""
    try:
        return tuple(parent.pid for parent in psutil.Process(pid).parents())
    except (psutil.Error, OSError):
        return ()


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def count_processes() -> int:
    """The processes of this machine, without the kernel's own threads."""
    kthreadd = 2
    return sum(1 for one in psutil.process_iter(["ppid"]) if kthreadd not in (one.pid, one.info["ppid"]))


def count_workers(pid: int, proc: Path = Path("/proc")) -> int:
    """The children that Python's multiprocessing has forked or spawned, such as the workers of a DataLoader.

    A forked child has the command line of its parent. Takes about 0.1 ms for each child.
    """
    command = _raw_command(proc, pid)
    children = (_raw_command(proc, child) for child in _children(proc, pid))
    return sum(1 for one in children if one and (one == command or _SPAWNED in one))


_SPAWNED = b"--multiprocessing-fork"
"""In the command line of a process that multiprocessing has spawned."""


def _children(proc: Path, pid: int) -> Iterator[int]:
    """The children of all threads of a process. Needs a kernel with CONFIG_PROC_CHILDREN, as distributions have it."""
    for task in (proc / str(pid) / "task").glob("*/children"):
        try:
            yield from map(int, task.read_text().split())
        except OSError:  # the thread has ended
            continue


def _raw_command(proc: Path, pid: int) -> bytes:
    try:
        return (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
