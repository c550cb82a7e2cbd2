"""Reads the code objects of a running Python: the file, the name and the first line of each function."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from otel_zernel_receivers.ebpf.processes.process_memory import memories_of, part_of
from otel_zernel_receivers.ebpf.sampler.layouts import Codes

_ADDRESSES: Final = struct.Struct("<4Q")
"""Of the texts of a code object, and of its table of lines."""
_LINE: Final = struct.Struct("<i")
_TEXT: Final = struct.Struct("<16xQ8xI")
"""The length in characters of a `str`, and its state."""
_LONGEST_TEXT: Final = 4096
"""Characters of a file or a name, as PATH_MAX: the memory of a process may say anything."""
_SHOWN: Final = 512
"""Their last characters, if there are more."""
_COMPACT, _ASCII = 1 << 5, 1 << 6
_ENCODINGS: Final = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
"""By the bytes of a character."""


class CodeObject(NamedTuple):
    """A function, or the code of a module."""

    file: str
    name: str
    """From Python 3.11 on with its class: `Trainer.fit`."""


class CodeHead(NamedTuple):
    """The fields of a code object. They change if another object uses the memory."""

    first_line: int
    file: int
    """The address of the text. The same for the others."""
    name: int
    line_table: int


def read_heads(own_pid: int, addresses: Sequence[int], layout: Codes) -> list[CodeHead | None]:
    """The fields of the code objects at these addresses of a process; None where there is no memory. Raises OSError.

    `own_pid` is the pid of the process in the collector's pid namespace.
    """
    before = layout.file - layout.first_line
    contents = memories_of(own_pid, [address + layout.first_line for address in addresses], before + _ADDRESSES.size)
    return [_head(content, before, layout) if content else None for content in contents]


def _head(content: bytes, before: int, layout: Codes) -> CodeHead:
    (first_line,) = _LINE.unpack_from(content)
    file, *others = _ADDRESSES.unpack_from(content, before)
    name, line_table = others[layout.has_qualified_name :][:2]
    return CodeHead(first_line, file, name, line_table)


def read_code(own_pid: int, head: CodeHead, layout: Codes) -> CodeObject | None:
    """The code object with these fields; None if its memory is not that of one. Raises OSError."""
    file = _read_text(own_pid, head.file, layout)
    name = _read_text(own_pid, head.name, layout) if file else None
    return CodeObject(file, name) if file and name else None


def _read_text(own_pid: int, address: int, layout: Codes) -> str | None:
    head = part_of(own_pid, address, layout.wide_text)
    if len(head) < layout.wide_text:
        return None
    length, state = _TEXT.unpack_from(head)
    size = state >> 2 & 7
    if not state & _COMPACT or size not in _ENCODINGS or length > _LONGEST_TEXT:
        return None
    start = layout.text if state & _ASCII else layout.wide_text
    skipped = max(length - _SHOWN, 0)
    text = part_of(own_pid, address + start + skipped * size, (length - skipped) * size) if length else b""
    return text.decode(_ENCODINGS[size], "replace")
