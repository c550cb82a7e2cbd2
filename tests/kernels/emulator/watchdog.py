"""Runs an emulator, and ends it if its machine stands still.

Each CPU of the machine writes to a file every two seconds (see `initramfs`). If a file does not change for long, its
CPU does not run.
"""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PERIOD = 0.5


class StandsStill(Exception):
    """A CPU of the machine has not run for too long; the message names its file."""


def run_watched(command: Sequence[str], console: Path, beats: Sequence[Path], silence: float, deadline: float) -> None:
    """Runs the command to its end, with its output in `console`.

    Raises StandsStill if a file of `beats` is neither created nor changed for `silence` seconds, TimeoutExpired at
    `deadline`, which is a time of the monotonic clock, and CalledProcessError if the command fails. The process has
    ended in each case.
    """
    began = time.monotonic()
    pulses = [_Pulse(beat, began) for beat in beats]
    with console.open("wb") as output, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output) as process:
        try:
            while process.poll() is None:
                _judge(pulses, silence)
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(command, deadline - began)
                time.sleep(_PERIOD)
        finally:
            process.kill()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


@dataclass(slots=True)
class _Pulse:
    """The changes of one file. The machine's clock may differ from the host's, so only changes are used."""

    file: Path
    changed_at: float
    """Monotonic time of the last change seen."""
    modified: int = 0

    def silence(self, now: float) -> float:
        """Seconds since the last change."""
        modified = self.file.stat().st_mtime_ns if self.file.exists() else 0
        if modified != self.modified:
            self.modified, self.changed_at = modified, now
        return now - self.changed_at


def _judge(pulses: Sequence[_Pulse], silence: float) -> None:
    now = time.monotonic()
    for pulse in pulses:
        if pulse.silence(now) > silence:
            raise StandsStill(f"{pulse.file.name} has not changed for {silence:.0f} s")
