"""The line of an instruction, by the table of its code object in the form of each version of Python.

Objects/lnotab_notes.txt of CPython 3.9 and 3.10 describes the first two forms, and InternalDocs/code_objects.md of 3.13
the third.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from otel_zernel_receivers.ebpf.sampler.layouts import LineForm

_HIGHEST_LINE: Final = (1 << 31) - 1
_NO_LINE: Final = -128
"""As a difference, in the form of Python 3.10."""
_LONGEST_NUMBER: Final = 6
"""Bytes of a number of up to 36 bits, in the form of Python 3.11."""


class LineTable:
    """The lines of one code object."""

    def __init__(self, form: LineForm, table: bytes, first_line: int) -> None:
        """`table` may be any bytes: the memory may be that of another object now."""
        self._first_line = first_line
        self._ends, self._lines = array("I"), array("I")
        with suppress(IndexError):
            for end, number in _FORMS[form](table, first_line):
                line = number if 0 < number <= _HIGHEST_LINE else 0
                if self._lines and self._lines[-1] == line:
                    self._ends[-1] = end
                else:
                    self._ends.append(end)
                    self._lines.append(line)

    def line_at(self, offset: int) -> int:
        """The line of the instruction at an offset in bytes; 0 if it has none.

        The offset of a frame that has not begun is negative.
        """
        if offset < 0:
            return max(self._first_line, 0)
        at = bisect_right(self._ends, offset)
        return self._lines[at] if at < len(self._lines) else 0


# Each form gives the offset behind the last instruction of a range, and its line; 0 if it has none.


def _steps(table: bytes, line: int) -> Iterator[tuple[int, int]]:
    end = 0
    for size, difference in zip(table[::2], table[1::2], strict=False):
        end += size
        yield end, line
        line += _signed(difference)
    yield _HIGHEST_LINE, line


def _ranges(table: bytes, line: int) -> Iterator[tuple[int, int]]:
    end = 0
    for size, difference in zip(table[::2], map(_signed, table[1::2]), strict=False):
        end += size
        if difference == _NO_LINE:
            yield end, 0
        else:
            line += difference
            yield end, line


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _locations(table: bytes, line: int) -> Iterator[tuple[int, int]]:
    at = end = 0
    while at < len(table):
        kind = table[at] >> 3 & 15
        end += 2 * ((table[at] & 7) + 1)
        at += 1
        if kind == 15:
            yield end, 0
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
        yield end, line


def _number(table: bytes, at: int) -> tuple[int, int]:
    """The number at a place, with six bits in each byte, and the place behind it. Raises IndexError."""
    number = 0
    for place, byte in enumerate(table[at : at + _LONGEST_NUMBER]):
        number |= (byte & 63) << 6 * place
        if not byte & 64:
            return number, at + place + 1
    raise IndexError


_FORMS: Final[Mapping[LineForm, Callable[[bytes, int], Iterator[tuple[int, int]]]]] = {
    LineForm.STEPS: _steps,
    LineForm.RANGES: _ranges,
    LineForm.LOCATIONS: _locations,
}
