"""Processes by their identity: a pid is used again, a pid with its start time is not."""

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ROUNDS: Final = 20
"""Attempts to kill processes that start others meanwhile."""


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process of this machine."""

    pid: int
    start: int
    """Clock ticks since the boot."""

    def is_alive(self) -> bool:
        """Whether it runs. A zombie does not."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        fields = text.rpartition(b")")[2].split()
        return fields[0] not in (b"Z", b"X") and int(fields[19]) == self.start

    def signal(self, number: int) -> None:
        """Sends a signal to this process, and never to another one with its pid."""
        with suppress(OSError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def kill_group(self) -> None:
        """Kills the process and its group, which it leads."""
        if self.is_alive():
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)


def kill_marked(variable: str) -> None:
    """Kills every process that was started with a variable of the environment (`NAME=value`)."""
    for _ in range(_ROUNDS):
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has_variable(pid, variable)]  # noqa: PTH208
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _has_variable(pid: int, variable: str) -> bool:
    """False for zombies, and for processes of other users."""
    try:
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def boot_id() -> str:
    """The id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def process_in(path: Path) -> LocalProcess | None:
    """The process that a file names by `pid` and `start`; None if there is no such file, or if it is damaged."""
    found = json_of(path) or {}
    pid, start = found.get("pid"), found.get("start")
    # 0 and negative pids stand for groups, and 1 for the machine
    is_process = isinstance(pid, int) and isinstance(start, int) and pid > 1
    return LocalProcess(pid, start) if is_process else None  # type: ignore[arg-type]  # checked above


def json_of(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such file, or if a broken disk has changed it."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None
