"""The line of an instruction, by the table of its code object in the form of each version of Python.

Objects/lnotab_notes.txt of CPython 3.9 and 3.10 describes the first two forms, and InternalDocs/code_objects.md of 3.13
the third.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from otel_zernel_receivers.ebpf.sampler.layouts import LineTable

_HIGHEST_LINE: Final = (1 << 31) - 1
_NO_LINE: Final = -128
"""As a difference, in the form of Python 3.10."""
_LONGEST_NUMBER: Final = 6
"""Bytes of a number of up to 36 bits, in the form of Python 3.11."""


class _Range(NamedTuple):
    """Instructions of one line."""

    end: int
    """The offset behind the last one, bytes."""
    line: int
    """0 if they have none."""


def line_at(form: LineTable, table: bytes, first_line: int, offset: int) -> int:
    """The line of the instruction at an offset in bytes; 0 if it has none.

    The offset of a frame that has not begun is negative.
    """
    if offset < 0:
        return first_line
    try:
        line = next((part.line for part in _FORMS[form](table, first_line) if offset < part.end), 0)
    except IndexError:  # the memory is that of another object now
        return 0
    return line if 0 < line <= _HIGHEST_LINE else 0


def _steps(table: bytes, line: int) -> Iterator[_Range]:
    end = 0
    for size, difference in zip(table[::2], table[1::2], strict=False):
        end += size
        yield _Range(end, line)
        line += _signed(difference)
    yield _Range(_HIGHEST_LINE, line)


def _ranges(table: bytes, line: int) -> Iterator[_Range]:
    end = 0
    for size, difference in zip(table[::2], map(_signed, table[1::2]), strict=False):
        end += size
        if difference == _NO_LINE:
            yield _Range(end, 0)
        else:
            line += difference
            yield _Range(end, line)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _locations(table: bytes, line: int) -> Iterator[_Range]:
    at = end = 0
    while at < len(table):
        kind = table[at] >> 3 & 15
        end += 2 * ((table[at] & 7) + 1)
        at += 1
        if kind == 15:
            yield _Range(end, 0)
            continue
        if kind < 10:  # the line before, and a byte of columns
            at += 1
        elif kind < 13:  # one of the next lines, and two bytes of columns
            line += kind - 10
            at += 2
        else:
            difference, at = _number(table, at)
            line += -(difference >> 1) if difference & 1 else difference >> 1
            for _ in range(3 if kind == 14 else 0):  # the last line, and the columns
                _, at = _number(table, at)
        yield _Range(end, line)


def _number(table: bytes, at: int) -> tuple[int, int]:
    """The number at a place, with six bits in each byte, and the place behind it. Raises IndexError."""
    number = 0
    for place, byte in enumerate(table[at : at + _LONGEST_NUMBER]):
        number |= (byte & 63) << 6 * place
        if not byte & 64:
            return number, at + place + 1
    raise IndexError


_FORMS: Final[Mapping[LineTable, Callable[[bytes, int], Iterator[_Range]]]] = {
    LineTable.STEPS: _steps,
    LineTable.RANGES: _ranges,
    LineTable.LOCATIONS: _locations,
}
