"""Follows files that grow, are truncated, and are rotated."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

from otel_zernel_receivers.csv.layouts.layout import ColumnPlan
from otel_zernel_receivers.csv.reader import CsvFileReader, FileBlock, Unreadable, reading_errors
from otel_zernel_receivers.csv.sources import ByteSource, expand, is_compressed, magic_of

GRACE = 5.0
"""Seconds that a renamed or removed file is still read after its last line: its writer may still have it open."""

Inode = tuple[int, int]
"""Device and inode number, which a file keeps when it is renamed."""


class Follower:
    """Follows all files that match paths and globs, each from its beginning, also those that are created later."""

    def __init__(
        self,
        reader: CsvFileReader,
        patterns: Sequence[str],
        monotonic: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        self._reader = reader
        self._patterns = patterns
        self._monotonic = monotonic
        self._warn = warn
        self._files: dict[Inode, _GrowingFile] = {}

    def check(self) -> None:
        """Raises `Unreadable` for a file that cannot be followed.

        A missing or empty file can be followed: a sidecar may start before the container that writes the file.
        """
        for pattern in self._patterns:
            names = _existing_files(pattern)
            if not names:
                self._warn(f"{pattern} does not exist yet; waiting for it")
            for name in names:
                with closing(_GrowingFile(self._reader, name)) as file:
                    file.next_block()

    def blocks(self) -> Iterator[FileBlock | None]:
        """The blocks of the growing files, in turn; None if no file has new lines. Never ends."""
        try:
            while True:
                existing = self._open_new_files()
                busy = False
                for inode, file in list(self._files.items()):
                    block = self._next_block(file)
                    if block is not None:
                        busy = True
                        yield block
                    elif file.is_finished(self._monotonic(), exists=inode in existing):
                        self._files.pop(inode).close()
                if not busy:
                    yield None
        finally:
            for file in self._files.values():
                file.close()

    def _open_new_files(self) -> set[Inode]:
        """Opens files that were created since the last call, and returns all existing files."""
        existing = set()
        for name in chain.from_iterable(map(_existing_files, self._patterns)):
            with suppress(FileNotFoundError):
                status = Path(name).stat()
                inode = (status.st_dev, status.st_ino)
                existing.add(inode)
                if inode not in self._files:
                    self._open(name)
        return existing

    def _open(self, name: str) -> None:
        try:
            file = _GrowingFile(self._reader, name)
        except Unreadable as problem:
            self._warn(str(problem))
        else:
            self._files[file.inode] = file

    def _next_block(self, file: "_GrowingFile") -> FileBlock | None:
        try:
            return file.next_block()
        except Unreadable as problem:
            self._warn(str(problem))
            return None


def _existing_files(pattern: str) -> list[str]:
    """The existing files that match a path or glob."""
    try:
        return [name for name in expand([pattern]) if Path(name).exists()]
    except FileNotFoundError:
        return []


class _GrowingFile:
    """One followed file. It is read until it is gone from its path and has no new lines."""

    def __init__(self, reader: CsvFileReader, name: str) -> None:
        """Opens the file. Raises `Unreadable`."""
        with reading_errors(name):
            self._file = Path(name).open("rb", buffering=0)  # noqa: SIM115  # `close` closes it
            status = os.fstat(self._file.fileno())
            compressed = is_compressed(magic_of(self._file))
        self.inode = (status.st_dev, status.st_ino)
        self._name = name
        self._reader = reader
        self._plan: ColumnPlan | None = None
        self._ended = False
        """Whether no further bytes are expected, so that the last line needs no line end."""
        self._gone_since: float | None = None
        self._blocks = self._read_blocks()
        if compressed:
            self.close()
            raise Unreadable(f"cannot follow {name}: it is compressed; follow the uncompressed file")

    def close(self) -> None:
        self._file.close()

    def next_block(self) -> FileBlock | None:
        """The next lines; None if there are no new ones. After it has raised `Unreadable` once, it returns None."""
        block = next(self._blocks, None)
        if block:
            self._plan, self._gone_since = block.plan, None
        elif os.fstat(self._file.fileno()).st_size < self._file.tell():
            return self._restart()
        return block

    def is_finished(self, now: float, *, exists: bool) -> bool:
        """Whether the file can be closed: it is gone from its path since `GRACE` s and read to its last byte.

        To be called if there are no new lines. `now` is in seconds of a monotonic clock.
        """
        if exists:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif self._ended:
            return True
        elif now - self._gone_since > GRACE:
            self._ended = True  # the last line is read even without a line end
        return False

    def _restart(self) -> FileBlock | None:
        """Goes back to the beginning of a truncated file. Returns the unfinished line before the truncation, if any."""
        self._ended = True
        last = next(self._blocks, None)
        self._file.seek(0)
        self._ended = False
        self._blocks = self._read_blocks()
        return last

    def _read_blocks(self) -> Iterator[FileBlock | None]:
        return self._reader.blocks(self._name, ByteSource(self._read), self._plan)

    def _read(self, size: int) -> bytes | None:
        return self._file.read(size) or (b"" if self._ended else None)
