"""Where the structs of CPython's interpreter have their fields, by version.

Up to 3.12 the offsets are those in the debug information of CPython's own builds. From 3.13 on the interpreter
publishes them itself, in the struct `_Py_DebugOffsets` at the begin of `_PyRuntime`.
"""

import struct
from typing import Final, NamedTuple

Version = tuple[int, int]


class Layout(NamedTuple):
    """Offsets in bytes."""

    main_interpreter: int
    """In `_PyRuntime`: the address of the main interpreter. The head of the list of interpreters is in front of it."""
    gil: int
    """In `_PyRuntime` the GIL, or in the interpreter its address."""
    gil_is_in_runtime: bool


LAYOUTS: Final = {
    (3, 9): Layout(40, 352, gil_is_in_runtime=True),
    (3, 10): Layout(40, 352, gil_is_in_runtime=True),
    (3, 11): Layout(48, 360, gil_is_in_runtime=True),
    (3, 12): Layout(48, 384, gil_is_in_runtime=False),
}
GIL_SIZE: Final = 208
"""Bytes of `struct _gil_runtime_state`, in all these versions."""


class DebugOffsets(NamedTuple):
    """The fields of `_Py_DebugOffsets` that are read."""

    version: Version
    is_free_threaded: bool
    layout: Layout | None
    """None if the version is newer than this reader."""


_DEBUG_OFFSETS: Final = struct.Struct("<16Q")
DEBUG_OFFSETS_SIZE: Final = _DEBUG_OFFSETS.size
_COOKIE: Final = int.from_bytes(b"xdebugpy", "little")
_PLACES: Final = {(3, 13): (5, 14)}
"""The positions of `interpreters_head` and `ceval_gil` in words, by version: later versions insert fields."""


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
    head, gil = (words[place] for place in _PLACES[version])
    return DebugOffsets(version, is_free_threaded, Layout(head + 8, gil, gil_is_in_runtime=False))


def version_of(number: int) -> Version:
    """The version in a number such as 0x030b07f0 (`PY_VERSION_HEX`)."""
    return number >> 24 & 0xFF, number >> 16 & 0xFF
