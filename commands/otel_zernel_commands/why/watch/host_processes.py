"""Processes of this machine, as /proc shows them."""

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
