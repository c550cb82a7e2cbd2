"""Reads the output of a local task."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.tasks.engines.engine import LogsGone
from otel_zernel_extensions.tasks.engines.local.folder import TaskFolder

_PIECE: Final = 1 << 16
_INTERVAL: Final = 0.2
"""Seconds between two looks at an output that is followed."""
_SEARCHED: Final = 1 << 23
"""Bytes at the end that are searched for the last lines."""


async def output_of(folder: TaskFolder, clock: Clock, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
    """As `Engine.logs`."""
    position = await run_in_thread(lambda: _beginning(folder, tail))
    if tail is None and position:
        yield f"[the first {position} bytes of the output are deleted]\n".encode()
    while True:
        has_ended = follow and await run_in_thread(folder.has_ended)
        piece, position = await run_in_thread(lambda at=position: _piece(folder, at))  # type: ignore[misc]
        while piece:
            yield piece
            piece, position = await run_in_thread(lambda at=position: _piece(folder, at))  # type: ignore[misc]
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
        return _last_lines(folder.output, tail, cut)
    except FileNotFoundError:
        return cut


def _last_lines(path: Path, count: int, cut: int) -> int:
    with path.open("rb") as file:
        end = file.seek(0, 2)
        first = max(cut, end - _SEARCHED)
        file.seek(first)
        data = file.read(end - first)
    at = len(data)
    if count == 0:
        return end
    if data.endswith(b"\n"):
        at -= 1
    for _ in range(count):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return first
    return first + at + 1


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
