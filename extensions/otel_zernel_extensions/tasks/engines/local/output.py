"""Reads the output of a local task."""

import os
from collections.abc import AsyncIterator
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel_extensions.tasks.engines.disk import from_disk, start_of_last
from otel_zernel_extensions.tasks.engines.engine import LogsGone
from otel_zernel_extensions.tasks.engines.local.folder import TaskFolder

_PIECE: Final = 1 << 16
_INTERVAL: Final = 0.2
"""Seconds between two looks at an output that is followed."""


async def output_of(folder: TaskFolder, clock: Clock, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
    """As `Engine.logs`."""
    position = await from_disk(lambda: _beginning(folder, tail))
    if tail is None and position:
        yield f"[the first {position} bytes of the output are deleted]\n".encode()
    while True:
        has_ended = follow and await from_disk(folder.has_ended)
        while True:
            piece, position = await from_disk(lambda at=position: _piece(folder, at))  # type: ignore[misc]
            if not piece:
                break
            yield piece
        if not follow or has_ended:
            return
        await clock.sleep(_INTERVAL)


def _beginning(folder: TaskFolder, tail: int | None) -> int:
    """The position of the first byte to read."""
    cut = folder.cut()
    if not folder.path.exists():
        raise LogsGone("the output of the task is deleted")
    if tail is None:
        return cut
    try:
        descriptor = os.open(folder.output, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return cut
    try:
        return start_of_last(descriptor, tail, cut)
    finally:
        os.close(descriptor)


def _piece(folder: TaskFolder, position: int) -> tuple[bytes, int]:
    """The next bytes, and the position after them. Bytes that are gone meanwhile are left out."""
    position = max(position, folder.cut())
    try:
        with folder.output.open("rb") as file:
            if file.seek(0, 2) < position:  # the output was cut to nothing, where files cannot have holes
                position = 0
            file.seek(position)
            data = file.read(_PIECE)
    except FileNotFoundError:
        return b"", position
    return data, position + len(data)
