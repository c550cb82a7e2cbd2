"""Reads files one after the other, as blocks of lines with a plan of their columns."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from otel_zernel_receivers.csv.config import STDIN
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan, CsvLayout, find_columns
from otel_zernel_receivers.csv.lines import LineBlock, LineReader
from otel_zernel_receivers.csv.plain import split_line
from otel_zernel_receivers.csv.sources import READ_ERRORS, ByteSource, expand, open_source

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Unreadable(Exception):
    """A file cannot be read, or its header does not fit the layout. The message is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Consecutive lines of one file, after its header."""

    file: str
    lines: LineBlock
    plan: ColumnPlan
    index: int
    """The index of the first line, counted from 0 after the header."""


@dataclass(frozen=True, slots=True)
class CsvFileReader:
    """Reads files of one layout. Its methods may block and raise `Unreadable`."""

    layout: CsvLayout
    timed: bool
    """Whether rows must have a time."""
    delimiter: str
    batch_size: int
    stop: threading.Event
    """Ends the waiting for standard input."""

    def expand(self, patterns: Sequence[str]) -> list[str]:
        """The files that match the paths and globs."""
        try:
            return expand(patterns)
        except FileNotFoundError as error:
            raise Unreadable(str(error)) from None

    def check(self, name: str) -> None:
        """Checks that a file has a valid header. Does not check the standard input, which can be read only once."""
        if name != STDIN:
            with closing(self._open(name)) as source, reading_errors(name):
                self._find_plan(name, LineReader(source.read))

    def read(self, name: str) -> Iterator[FileBlock | None]:
        """The blocks of a file; None while there are no new lines."""
        with closing(self._open(name)) as source:
            yield from self.blocks(name, source)

    def blocks(self, name: str, source: ByteSource, known: ColumnPlan | None = None) -> Iterator[FileBlock | None]:
        """The blocks of an open file; None while there are no new lines.

        With a `known` plan, the header is optional.
        """
        lines = LineReader(source.read)
        with reading_errors(name):
            while (plan := self._find_plan(name, lines, known)) is None:
                yield None
            index = 0
            for block in lines.blocks(self.batch_size):
                yield FileBlock(name, block, plan, index) if block else None
                index += len(block.ends) if block else 0

    def _open(self, name: str) -> ByteSource:
        with reading_errors(name):
            return open_source(name, self.stop)

    def _find_plan(self, name: str, lines: LineReader, known: ColumnPlan | None = None) -> ColumnPlan | None:
        """Finds the columns in the header and skips it. None if the header is not complete yet."""
        header = lines.peek_line()
        if header is None:
            return None
        if not header.strip():
            raise Unreadable(f"{name} has no header: its first line is empty; add a line with the names of the columns")
        try:
            names = split_line(header.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n"), self.delimiter)
            plan = find_columns(self.layout, names, timed=self.timed)
        except (LookupError, ValueError) as error:
            if known:
                return known
            problem = error.args[0] if isinstance(error, LookupError) else f"is not valid CSV ({error})"
            raise Unreadable(f"the header of {name} {problem}; check the options layout and delimiter") from None
        lines.skip_line()
        return plan


@contextmanager
def reading_errors(name: str) -> Iterator[None]:
    """Converts the errors of opening and reading a file to `Unreadable`, with the name of the file."""
    try:
        yield
    except READ_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unreadable(f"cannot read {name}: {reason}") from error
