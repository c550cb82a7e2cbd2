"""Processes by their identity: a pid is used again, a pid with its start time is not."""

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


def boot_id() -> str:
    """The id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def json_of(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such file, or if a broken disk has changed it."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None
