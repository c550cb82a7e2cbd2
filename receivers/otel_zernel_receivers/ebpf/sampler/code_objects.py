"""Reads the code objects of a running Python: the file and the name of each function."""

import struct
from typing import Final, NamedTuple

from otel_zernel_receivers.ebpf.processes.process_memory import memory_of
from otel_zernel_receivers.ebpf.sampler.layouts import Codes

_TEXT: Final = struct.Struct("<16xQ8xI")
"""The length in characters of a `str`, and its state."""
_LONGEST: Final = 512
"""Characters of a file or a name that are read: its memory may say anything."""
_COMPACT, _ASCII = 1 << 5, 1 << 6
_ENCODINGS: Final = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
"""By the bytes of a character."""


class CodeObject(NamedTuple):
    """A function, or the code of a module."""

    file: str
    name: str
    """From Python 3.11 on with its class: `Trainer.fit`."""


def read_code(own_pid: int, address: int, layout: Codes) -> CodeObject | None:
    """The code object at an address of a process; None if there is none any more. Raises OSError.

    `own_pid` is the pid of the process in the collector's pid namespace.
    """
    addresses = memory_of(own_pid, address + layout.file, 24)
    if len(addresses) < 24:
        return None
    file, name, qualified = struct.unpack("<3Q", addresses)
    texts = (_read_text(own_pid, at, layout) for at in (file, qualified if layout.has_qualified_name else name))
    return CodeObject(*read) if all(read := [text or "" for text in texts]) else None


def _read_text(own_pid: int, address: int, layout: Codes) -> str | None:
    head = memory_of(own_pid, address, layout.wide_text)
    if len(head) < layout.wide_text:
        return None
    length, state = _TEXT.unpack_from(head)
    size = state >> 2 & 7
    if not state & _COMPACT or size not in _ENCODINGS or length > _LONGEST:
        return None
    start = layout.text if state & _ASCII else layout.wide_text
    return memory_of(own_pid, address + start, length * size).decode(_ENCODINGS[size], "replace") if length else ""
