"""Follows files that grow, are truncated, and are rotated away."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

from otel_zernel_receivers.csv.layouts.layout import Plan
from otel_zernel_receivers.csv.reader import Block, Reader, Unreadable, readable
from otel_zernel_receivers.csv.sources import Source, expand, is_compressed, magic_of

GRACE = 5.0
"""Seconds that a renamed or removed file is still read after its last line: its writer may not have noticed yet."""

Identity = tuple[int, int]
"""Device and inode: what stays when a file is renamed."""


class Follower:
    """Follows all files behind paths and globs, each from its beginning; also those that come later."""

    def __init__(
        self, reader: Reader, patterns: Sequence[str], monotonic: Callable[[], float], warn: Callable[[str], None]
    ) -> None:
        self._reader = reader
        self._patterns = patterns
        self._monotonic = monotonic
        self._warn = warn
        self._files: dict[Identity, _GrowingFile] = {}

    def check(self) -> None:
        """Raises `Unreadable` for a file that cannot be followed. One that is empty or missing still can: a sidecar
        starts before the container whose files it follows."""
        for pattern in self._patterns:
            names = _there(pattern)
            if not names:
                self._warn(f"{pattern} is not there yet; waiting for it")
            for name in names:
                with closing(_GrowingFile(self._reader, name)) as file:
                    file.next_block()

    def blocks(self) -> Iterator[Block | None]:
        """Blocks as the files grow, in turn; None when all are quiet. Never ends."""
        try:
            while True:
                there = self._look_around()
                busy = False
                for identity, file in list(self._files.items()):
                    block = self._next_block(file)
                    if block is not None:
                        busy = True
                        yield block
                    elif file.is_over(identity in there, self._monotonic()):
                        self._files.pop(identity).close()
                if not busy:
                    yield None
        finally:
            for file in self._files.values():
                file.close()

    def _look_around(self) -> set[Identity]:
        """Opens files that are new, and returns what is there."""
        there = set()
        for name in chain.from_iterable(map(_there, self._patterns)):
            with suppress(FileNotFoundError):
                status = Path(name).stat()
                identity = (status.st_dev, status.st_ino)
                there.add(identity)
                if identity not in self._files:
                    self._open(name)
        return there

    def _open(self, name: str) -> None:
        try:
            file = _GrowingFile(self._reader, name)
        except Unreadable as problem:
            self._warn(str(problem))
        else:
            self._files[file.identity] = file

    def _next_block(self, file: "_GrowingFile") -> Block | None:
        try:
            return file.next_block()
        except Unreadable as problem:
            self._warn(str(problem))
            return None


def _there(pattern: str) -> list[str]:
    """The files behind a path or glob, of which there may be none."""
    try:
        return [name for name in expand([pattern]) if Path(name).exists()]
    except FileNotFoundError:
        return []


class _GrowingFile:
    def __init__(self, reader: Reader, name: str) -> None:
        with readable(name):
            self._file = Path(name).open("rb", buffering=0)  # noqa: SIM115  # `close` closes it
            status = os.fstat(self._file.fileno())
            compressed = is_compressed(magic_of(self._file))
        self.identity = (status.st_dev, status.st_ino)
        self._name = name
        self._reader = reader
        self._plan: Plan | None = None
        self._ended = False
        self._gone_since: float | None = None
        self._blocks = self._read_on()
        if compressed:
            self.close()
            raise Unreadable(f"cannot follow {name}: it is compressed; follow the plain file")

    def close(self) -> None:
        self._file.close()

    def next_block(self) -> Block | None:
        """The next lines; None if there are none now. Raises `Unreadable` once, and is silent from then on."""
        block = next(self._blocks, None)
        if block:
            self._plan, self._gone_since = block.plan, None
        elif os.fstat(self._file.fileno()).st_size < self._file.tell():
            return self._start_again()
        return block

    def is_over(self, still_there: bool, now: float) -> bool:
        """Whether a quiet file is done with: gone from its path, for long enough, and read to its last byte."""
        if still_there:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif self._ended:
            return True
        elif now - self._gone_since > GRACE:
            self._ended = True  # so that the last line comes, even without a line end
        return False

    def _start_again(self) -> Block | None:
        """Goes back to the beginning of a truncated file; returns the line that was cut off, if there was one."""
        self._ended = True
        last = next(self._blocks, None)
        self._file.seek(0)
        self._ended = False
        self._blocks = self._read_on()
        return last

    def _read_on(self) -> Iterator[Block | None]:
        return self._reader.blocks(self._name, Source(self._read), self._plan)

    def _read(self, size: int) -> bytes | None:
        return self._file.read(size) or (b"" if self._ended else None)
