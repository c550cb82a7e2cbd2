"""Reads files one after the other, as blocks of lines that know their columns."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from otel_zernel_receivers.csv.config import STDIN
from otel_zernel_receivers.csv.layouts.layout import Layout, Plan, find_columns
from otel_zernel_receivers.csv.lines import LineReader, Lines
from otel_zernel_receivers.csv.plain import split_line
from otel_zernel_receivers.csv.sources import READ_ERRORS, Source, expand, open_source

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Unreadable(Exception):
    """A sentence about a file that cannot be read, or whose header lacks what the layout needs."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of one file, below its header."""

    file: str
    lines: Lines
    plan: Plan
    index: int
    """Of the first line among those below the header, from 0."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How files are read. What it does may block and raise `Unreadable`."""

    layout: Layout
    timed: bool
    """Whether rows need a time."""
    delimiter: str
    batch_size: int
    stop: threading.Event
    """Ends the waiting for standard input."""

    def expand(self, patterns: Sequence[str]) -> list[str]:
        """The files behind paths and globs."""
        try:
            return expand(patterns)
        except FileNotFoundError as error:
            raise Unreadable(str(error)) from None

    def check(self, name: str) -> None:
        """Opens a file and looks at its header; not the standard input's, which can be read only once."""
        if name != STDIN:
            with closing(self._open(name)) as source, readable(name):
                self._find_plan(name, LineReader(source.read))

    def read(self, name: str) -> Iterator[Block | None]:
        """A file's blocks; None where there is nothing yet."""
        with closing(self._open(name)) as source:
            yield from self.blocks(name, source)

    def blocks(self, name: str, source: Source, known: Plan | None = None) -> Iterator[Block | None]:
        """The blocks of an open file. If its plan is `known`, it may go on without a header."""
        lines = LineReader(source.read)
        with readable(name):
            while (plan := self._find_plan(name, lines, known)) is None:
                yield None
            index = 0
            for block in lines.blocks(self.batch_size):
                yield Block(name, block, plan, index) if block else None
                index += len(block.ends) if block else 0

    def _open(self, name: str) -> Source:
        with readable(name):
            return open_source(name, self.stop)

    def _find_plan(self, name: str, lines: LineReader, known: Plan | None = None) -> Plan | None:
        """The plan by the header, which is then consumed; None if the header is not there yet."""
        header = lines.peek_line()
        if header is None:
            return None
        if not header.strip():
            raise Unreadable(f"{name} has no header: its first line is empty")
        try:
            names = split_line(header.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n"), self.delimiter)
            plan = find_columns(self.layout, names, timed=self.timed)
        except (LookupError, ValueError) as error:
            if known:
                return known
            problem = error.args[0] if isinstance(error, LookupError) else f"is no CSV ({error})"
            raise Unreadable(f"the header of {name} {problem}") from None
        lines.skip_line()
        return plan


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turns what opening and reading a file may raise into `Unreadable`, which names the file."""
    try:
        yield
    except READ_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unreadable(f"cannot read {name}: {reason}") from error
