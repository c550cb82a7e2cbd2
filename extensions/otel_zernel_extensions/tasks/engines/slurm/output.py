"""The files of a task on the cluster's shared disk: output, result. This machine may lack the disk."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel_extensions.tasks.engines.disk import from_disk, start_of_last
from otel_zernel_extensions.tasks.engines.engine import LogsGone

_PIECE: Final = 64 << 10
_WAIT: Final = 0.5
"""Seconds between two looks at the end of a file that grows."""


class Files:
    """The files of one task."""

    def __init__(self, directory: str, task_id: str) -> None:
        self.output = Path(directory, f"{task_id}.log")
        self._result = Path(directory, f"{task_id}.exit")
        self._taken = Path(directory, f"{task_id}.job")

    def result(self) -> int | None:
        """The exit code that the script has written. Blocks."""
        code = _number_in(self._result)
        return code if code is None or code < 256 else None

    def taken_by(self) -> int | None:
        """The id of the job that has taken the task. Blocks."""
        return _number_in(self._taken)

    def delete(self) -> None:
        """Deletes all. Blocks. A file that is missing, or a disk that this machine does not have, is no error."""
        for path in (self.output, self._result, self._taken):
            try:
                path.unlink()
            except OSError:
                continue

    async def read(
        self, ended: Callable[[], Awaitable[bool]], follow: bool, tail: int | None, clock: Clock
    ) -> AsyncIterator[bytes]:
        """The output, in pieces. With `follow`, until `ended()`, and then the rest. Raises `LogsGone`
        before the first piece, or `NoAnswer`."""
        place = f"the output is in {self.output} on the disk of the cluster"
        while not (opened := await from_disk(lambda: _opened(self.output, tail))):
            if not follow or await ended():
                raise LogsGone(f"{place}; this machine has no such file, or the task has not started")
            await clock.sleep(_WAIT)
        descriptor, position = opened
        try:
            while True:
                # Asked before the last look, so that nothing that was written until the end is missed.
                last = not follow or await ended()
                while piece := await from_disk(lambda at=position: os.pread(descriptor, _PIECE, at)):  # type: ignore[misc]
                    position += len(piece)
                    yield piece
                if last:
                    return
                await clock.sleep(_WAIT)
        finally:
            os.close(descriptor)


def _number_in(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            text = file.read(16).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _opened(path: Path, tail: int | None) -> tuple[int, int] | None:
    """A descriptor, and the position from which to read. None if the file cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return descriptor, 0 if tail is None else start_of_last(descriptor, tail)
    except OSError:
        os.close(descriptor)
        raise
