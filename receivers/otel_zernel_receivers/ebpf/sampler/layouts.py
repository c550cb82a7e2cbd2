"""Where the structs of CPython's interpreter have their fields, by version.

Up to 3.12 the offsets are those in the debug information of CPython's own builds. From 3.13 on the interpreter
publishes them itself, in the struct `_Py_DebugOffsets` at the begin of `_PyRuntime`.
"""

import struct
from enum import Enum, auto
from typing import Final, NamedTuple

Version = tuple[int, int]


class Frames(NamedTuple):
    """How the frames of a thread are found: offsets in bytes, as in `struct python` of bpf/python.bpf.h."""

    thread_id: int
    frame: int
    is_indirect: int
    frame_in_place: int
    previous: int
    code: int
    instruction: int
    is_number: int
    owner: int = 0
    shim: int = 0
    thread_register: int = 0


class LineForm(Enum):
    """The forms of the table that gives the line of each instruction of a code object."""

    STEPS = auto()
    """`co_lnotab` of Python 3.9: from line to line, the bytes and the lines in between."""
    RANGES = auto()
    """`co_linetable` of Python 3.10: the bytes of each range, and the difference of its line from the one before."""
    LOCATIONS = auto()
    """`co_linetable` from Python 3.11 on: the instructions and the location of each range, in numbers of any length."""


class Codes(NamedTuple):
    """How a code object and its texts are read: offsets in bytes."""

    file: int
    """In a code object: the address of its file's name. The name of the function follows, the qualified name if there
    is one, and the table of lines."""
    has_qualified_name: bool
    text: int
    """In a `str` of ASCII characters: the first one."""
    wide_text: int
    """In any other `str`."""
    first_line: int
    instructions: int
    """The first instruction."""
    line_form: LineForm


class Layout(NamedTuple):
    """Offsets in bytes."""

    main_interpreter: int
    """In `_PyRuntime`: the address of the main interpreter. The head of the list of interpreters is in front of it."""
    gil: int
    """In `_PyRuntime` the GIL, or in the interpreter its address."""
    gil_is_in_runtime: bool
    threads: int
    """In the interpreter: the address of the state of its latest thread."""
    next_thread: int
    """In that state: the address of the next one."""
    frames: Frames
    codes: Codes


_CODES: Final = {
    (3, 9): Codes(104, False, 48, 72, 40, 0, LineForm.STEPS),
    (3, 10): Codes(104, False, 48, 72, 40, 0, LineForm.RANGES),
    (3, 11): Codes(112, True, 48, 72, 72, 184, LineForm.LOCATIONS),
    (3, 12): Codes(112, True, 40, 56, 68, 192, LineForm.LOCATIONS),
    (3, 13): Codes(112, True, 40, 56, 68, 200, LineForm.LOCATIONS),
    (3, 14): Codes(112, True, 40, 56, 68, 208, LineForm.LOCATIONS),
}
LAYOUTS: Final = {
    (3, 9): Layout(40, 352, True, 8, 8, Frames(176, 24, 0, 0, 24, 32, 104, 1), _CODES[3, 9]),
    (3, 10): Layout(40, 352, True, 8, 8, Frames(176, 24, 0, 0, 24, 32, 96, 1), _CODES[3, 10]),
    (3, 11): Layout(48, 360, True, 16, 8, Frames(152, 56, 1, 8, 48, 32, 56, 0), _CODES[3, 11]),
    (3, 12): Layout(48, 384, False, 72, 8, Frames(136, 56, 1, 0, 8, 0, 56, 0, owner=70, shim=3), _CODES[3, 12]),
}
GIL_SIZE: Final = 208
"""Bytes of `struct _gil_runtime_state`, in all these versions."""


class DebugOffsets(NamedTuple):
    """The fields of `_Py_DebugOffsets` that are read."""

    version: Version
    is_free_threaded: bool
    layout: Layout | None
    """None if the version is newer than this reader, or if the offsets cannot be right."""


_DEBUG_OFFSETS: Final = struct.Struct("<37Q")
DEBUG_OFFSETS_SIZE: Final = _DEBUG_OFFSETS.size
_COOKIE: Final = int.from_bytes(b"xdebugpy", "little")
_LARGEST_OFFSET: Final = 1 << 20  # bytes; an interpreter has some 100 kB
_SHIM: Final = 3  # FRAME_OWNED_BY_CSTACK; from Python 3.14 on FRAME_OWNED_BY_INTERPRETER, and the other is 4


class _Places(NamedTuple):
    """The positions of offsets in `_Py_DebugOffsets`, in words: later versions insert fields."""

    interpreters_head: int
    threads_head: int
    ceval_gil: int
    next_thread: int
    current_frame: int
    thread_id: int
    previous: int
    executable: int
    instruction: int
    owner: int


_PLACES: Final = {
    (3, 13): _Places(5, 9, 14, 21, 23, 24, 29, 30, 31, 33),
    (3, 14): _Places(5, 9, 15, 24, 26, 27, 32, 33, 34, 36),
}


def debug_offsets(runtime: bytes) -> DebugOffsets | None:
    """Reads the begin of `_PyRuntime`; None before Python 3.13."""
    if len(runtime) < DEBUG_OFFSETS_SIZE:
        return None
    words = _DEBUG_OFFSETS.unpack_from(runtime)
    if words[0] != _COOKIE:
        return None
    version, is_free_threaded = version_of(words[1]), bool(words[2])
    if version not in _PLACES:
        return DebugOffsets(version, is_free_threaded, None)
    at = _Places(*(words[place] for place in _PLACES[version]))
    if max(at) > _LARGEST_OFFSET:
        return DebugOffsets(version, is_free_threaded, None)
    frames = Frames(
        at.thread_id, at.current_frame, 0, 0, at.previous, at.executable, at.instruction, 0, at.owner, _SHIM
    )
    places = at.interpreters_head + 8, at.ceval_gil, False, at.threads_head, at.next_thread
    layout = Layout(*places, frames, _CODES[version])
    return DebugOffsets(version, is_free_threaded, layout)


def version_of(number: int) -> Version:
    """The version in a number such as 0x030b07f0 (`PY_VERSION_HEX`)."""
    return number >> 24 & 0xFF, number >> 16 & 0xFF
