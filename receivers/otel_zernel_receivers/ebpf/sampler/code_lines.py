"""Finds the file, the function and the line of places in the Python code of running processes.

    lines = CodeLines()
    lines.of(own_pid, runtime.layout.codes, folders, frames.places)   # the innermost first, as the places are

An interpreter frees code objects, and others use their memory. So read the places of a stack soon after the stack.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_zernel_libraries.training.library_folders import LibraryFolders
from otel_zernel_libraries.training.stacks import CodeLine
from otel_zernel_receivers.ebpf.processes.process_memory import part_of
from otel_zernel_receivers.ebpf.sampler.code_objects import CodeHead, CodeObject, read_code, read_heads
from otel_zernel_receivers.ebpf.sampler.layouts import Codes, LineForm
from otel_zernel_receivers.ebpf.sampler.line_tables import LineTable
from otel_zernel_receivers.ebpf.tables.samples import Place

UNKNOWN_LINE: Final = CodeLine("", "", 0, "")
_MOST_CODES: Final = 8192
"""Of a process at a time. A program that compiles makes ever new ones."""
_MOST_PROCESSES: Final = 1024
_LARGEST_TABLE: Final = 1 << 16
"""Bytes: the table of 5,000 lines in one function."""
_MOST_AT_ONCE: Final = 1 << 19
"""Bytes of tables that one call reads. A process may have made them to hurt."""
_MOST_KEPT: Final = 1 << 21
"""Bytes of tables that are kept of a process."""
_BYTES: Final = struct.Struct("<16xQ8x")
"""The size of a `bytes`, and the fields before its content."""
_UNIT: Final = 2
"""Bytes of an instruction. Python 3.10 counts instructions."""


@dataclass(slots=True)
class _Known:
    """A code object."""

    head: CodeHead
    code: CodeObject | None
    """None if its memory is not that of a code object."""
    path: str
    """Of its file within the folder of its library."""
    table: LineTable | None = None
    """None until a line is needed."""
    lines: dict[int, CodeLine] = field(default_factory=dict)
    """By instruction."""


@dataclass(slots=True)
class _Process:
    """What is known of a process."""

    codes: dict[int, _Known] = field(default_factory=dict)
    """By the address of the code object."""
    kept: int = 0
    """Bytes of the tables that were read."""


class CodeLines:
    """Remembers the code objects of all processes. One thread at a time may use it."""

    def __init__(self) -> None:
        self._known: dict[int, _Process] = {}
        """By pid."""

    def of(self, own_pid: int, layout: Codes, folders: LibraryFolders, places: Sequence[Place]) -> tuple[CodeLine, ...]:
        """The line of each place in a process; `UNKNOWN_LINE` where there is no code any more. Raises OSError.

        `own_pid` is the pid of the process in the collector's pid namespace. An error says that the process has ended,
        or that the collector may not read it.
        """
        process = self._learn(own_pid, layout, folders, list({place.code for place in places}))
        most = process.kept + _MOST_AT_ONCE
        return tuple(_line(own_pid, layout, process, place, most) for place in places)

    def forget(self, own_pid: int) -> None:
        """Forgets a process."""
        self._known.pop(own_pid, None)

    def _learn(self, own_pid: int, layout: Codes, folders: LibraryFolders, addresses: Sequence[int]) -> _Process:
        known = self._known.pop(own_pid, _Process())
        if len(known.codes) + len(addresses) > _MOST_CODES or known.kept > _MOST_KEPT:
            known = _Process()
        self._known[own_pid] = known
        while len(self._known) > _MOST_PROCESSES:
            del self._known[next(iter(self._known))]  # the one whose latest call is the oldest
        for address, head in zip(addresses, read_heads(own_pid, addresses, layout), strict=True):
            if not head:
                known.codes.pop(address, None)
            elif address not in known.codes or known.codes[address].head != head:
                code = read_code(own_pid, head, layout)
                known.codes[address] = _Known(head, code, folders.path_of(code.file) if code else "")
        return known


def _line(own_pid: int, layout: Codes, process: _Process, place: Place, most: int) -> CodeLine:
    known = process.codes.get(place.code)
    if not known or not known.code:
        return UNKNOWN_LINE
    if line := known.lines.get(place.instruction):
        return line
    if not known.table:
        if process.kept > most:
            return CodeLine(*known.code, 0, known.path)
        content = _read_table(own_pid, known.head.line_table)
        process.kept += len(content)
        known.table = LineTable(layout.line_form, content, known.head.first_line)
    number = known.table.line_at(_offset(layout, place))
    line = known.lines[place.instruction] = CodeLine(*known.code, number, known.path)
    return line


def _offset(layout: Codes, place: Place) -> int:
    """Of an instruction from the first one, bytes; negative in a frame before its start."""
    if layout.instructions:
        return place.instruction - place.code - layout.instructions
    number = place.instruction - (1 << 32) if place.instruction >> 31 else place.instruction
    return number * (_UNIT if layout.line_form is LineForm.RANGES else 1)


def _read_table(own_pid: int, address: int) -> bytes:
    head = part_of(own_pid, address, _BYTES.size)
    if len(head) < _BYTES.size:
        return b""
    (size,) = _BYTES.unpack(head)
    return part_of(own_pid, address + _BYTES.size, size) if size <= _LARGEST_TABLE else b""
