"""The capabilities that a user without root has in a container.

The kernel lets a process hold those that its program's file permits, but does not turn them on: Kubernetes gives no
ambient capabilities (KEP-2763). A program that turns them on itself also starts without them.
"""

import ctypes
import struct
import sys
from pathlib import Path
from typing import Final

_VERSION_3: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 of linux/capability.h: two words for each set."""
_WORDS: Final = struct.Struct("=6I")
"""Effective, permitted and inheritable, for capabilities 0 to 31, and then for 32 to 63."""


def raise_permitted() -> None:
    """Turns on every capability that this process may turn on. Must run before other threads start.

    Without effect on other systems than Linux. If the kernel refuses, the capabilities stay as they are.
    """
    if sys.platform != "linux":
        return
    effective, permitted, inheritable = _sets(Path("/proc/self/status").read_text())
    if permitted & ~effective:
        _set(permitted, inheritable)


def _sets(status: str) -> tuple[int, int, int]:
    """The effective, permitted and inheritable sets in the text of a /proc/PID/status."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Cap"))
    return int(fields["CapEff"], 16), int(fields["CapPrm"], 16), int(fields["CapInh"], 16)


def _set(permitted: int, inheritable: int) -> None:
    words = [mask >> shift & 0xFFFFFFFF for shift in (0, 32) for mask in (permitted, permitted, inheritable)]
    header = struct.pack("=Ii", _VERSION_3, 0)
    ctypes.CDLL(None).capset(header, _WORDS.pack(*words))
