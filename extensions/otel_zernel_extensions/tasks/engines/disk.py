"""Reads outputs of tasks from a disk, which may fail."""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from otel_zernel.errors import NoAnswer
from otel_zernel.runtime.threads import run_in_thread

T = TypeVar("T")
_PIECE: Final = 64 << 10
_SEARCHED: Final = 8 << 20
"""Bytes at the end that are searched: a progress bar may write megabytes without a line break."""


async def from_disk(read: Callable[[], T]) -> T:
    """The result of a function that reads files, in a thread. Raises `NoAnswer` if the disk fails."""
    try:
        return await run_in_thread(read)
    except OSError as error:
        raise NoAnswer(f"the disk fails: {error.strerror} ({error.filename or 'output'})") from error


def start_of_last(descriptor: int, lines: int, first: int = 0) -> int:
    """The position at which the last lines of an open file begin. `first` is the first byte that may be read.

    If the last 8 MiB have fewer lines, it is the position 8 MiB before the end. Holds 64 KiB at a time. Blocks. Raises
    `OSError`.
    """
    end = position = os.fstat(descriptor).st_size
    if lines == 0:
        return end
    first = min(end, max(first, end - _SEARCHED))
    wanted = lines
    while position > first:
        begin = max(first, position - _PIECE)
        part = os.pread(descriptor, position - begin, begin)
        # The line break at the very end of the file ends the last line.
        at = len(part) - (position == end and part.endswith(b"\n"))
        while (at := part.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + at + 1
        position = begin
    return first
