"""Reads files once, each from the position that was reached before."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_zernel_libraries.files.growing import GrowingFile
from otel_zernel_libraries.files.positions import Position, Positions
from otel_zernel_libraries.files.sources import ReadBytes, is_stream, open_source, reading_errors
from otel_zernel_receivers.csv.reader import CsvFileReader, FileBlock, is_place

_COMPRESSED = "compressed"
"""The key in `Position.resume` for the size of a compressed or UTF-16 file. Its fingerprint covers these bytes."""


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block, and the position after it: what a restart needs to read none of its rows again."""

    block: FileBlock
    key: str = ""
    """The file's identity, for `Positions.commit`."""
    position: Position | None = None
    """None for a pipe, which can be read only once."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Reads files to their present end. Its method blocks and raises `Unreadable`."""

    reader: CsvFileReader
    positions: Positions | None
    """None to read every file from its beginning."""

    def blocks(self, name: str) -> Generator[ReadBlock | None, None, None]:
        """The blocks of a file after its position; None while a pipe has no more."""
        with reading_errors(name):
            if is_stream(name):
                yield from (ReadBlock(block) if block else None for block in self.reader.read(name))
                return
            file = GrowingFile(name)
        with closing(file), reading_errors(name):
            known = self.positions.get(file.key) if self.positions else None
            yield from self._encoded(file, known) if file.encoding else self._plain(file, known)

    def _plain(self, file: GrowingFile, known: Position | None) -> Iterator[ReadBlock]:
        if known and (_COMPRESSED in known.resume or not is_place(known.resume) or not file.go_on(known)):
            known = None
        file.end()
        for block in self.reader.go_on(file.name, file.read, file.offset, known.resume if known else None):
            if block:
                end = min(block.end, file.offset)
                yield ReadBlock(block, file.key, Position(end, file.fingerprint(end), block.resume))

    def _encoded(self, file: GrowingFile, known: Position | None) -> Iterator[ReadBlock]:
        """The position counts decoded bytes. They are decoded again and skipped."""
        size = Path(file.name).stat().st_size
        if known and not _is_same(file, size, known.resume, known.fingerprint):
            known = None
        fingerprint = file.fingerprint(size)
        offset, resume = (known.offset, known.resume) if known else (0, None)
        with closing(open_source(file.name, self.reader.stop)) as source:
            for block in self.reader.go_on(file.name, _after(source.read, offset), offset, resume):
                if block:
                    place = {**block.resume, _COMPRESSED: size}
                    yield ReadBlock(block, file.key, Position(block.end, fingerprint, place))


def _is_same(file: GrowingFile, size: int, resume: Mapping[str, Any], fingerprint: str) -> bool:
    """Whether the encoded file begins with the bytes that it had when the position was stored."""
    before = resume.get(_COMPRESSED)
    return (
        is_place(resume) and isinstance(before, int) and 0 < before <= size and file.fingerprint(before) == fingerprint
    )


def _after(read: ReadBytes, offset: int) -> ReadBytes:
    """Reads what follows the first `offset` bytes."""
    left = offset

    def rest(size: int) -> bytes | None:
        nonlocal left
        while (data := read(size)) and left:
            skipped, left = left, max(0, left - len(data))
            if len(data) > skipped:
                return data[skipped:]
        return data

    return rest
