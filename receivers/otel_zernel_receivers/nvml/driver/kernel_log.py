"""XIDs in the kernel's log, from before the receiver's start.

NVRM: Xid (PCI:0000:65:00): 79, pid=4711, name=python, GPU has fallen off the bus.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_MOST: Final = 100_000
"""Records. The kernel keeps some thousand."""
_LARGEST: Final = 8_192
"""Bytes of a record, as in the kernel."""
_RECORD: Final = re.compile(
    rb"\d+,\d+,(?P<us>\d+),[^;]*;NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)\b", re.ASCII
)
"""As https://docs.kernel.org/core-api/printk-basics.html and ABI/testing/dev-kmsg describe it."""

BusId = tuple[int, int, int]
"""PCI domain, bus and device."""


class LoggedXid(NamedTuple):
    """An error of the log."""

    code: int
    time_ns: int
    """Since 1970."""


def bus_id(text: str) -> BusId | None:
    """The number of a PCI device, as in `0000:65:00` and `00000000:65:00.0`."""
    with suppress(ValueError):
        domain, bus, device = (int(part, 16) for part in text.partition(".")[0].split(":"))
        return domain, bus, device
    return None


def logged_xids(records: Iterable[bytes], booted_ns: int, since_ns: int) -> Mapping[BusId, list[LoggedXid]]:
    """The XIDs of each GPU from `since_ns` on, ns since 1970. `booted_ns`: when the machine was booted."""
    xids: defaultdict[BusId, list[LoggedXid]] = defaultdict(list)
    for record in records:
        if match := _RECORD.match(record):
            gpu, time_ns = bus_id(match["bus"].decode()), booted_ns + int(match["us"]) * 1000
            if gpu and time_ns >= since_ns:
                xids[gpu].append(LoggedXid(int(match["code"]), time_ns))
    return xids


def kernel_log(path: Path = Path("/dev/kmsg")) -> Iterator[bytes]:
    """The records of the kernel's log; none if there is no log here, or no right to read it (CAP_SYSLOG)."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for _ in range(_MOST):
                with suppress(BrokenPipeError):  # newer records have replaced the next one
                    yield os.read(fd, _LARGEST)
        finally:
            os.close(fd)
