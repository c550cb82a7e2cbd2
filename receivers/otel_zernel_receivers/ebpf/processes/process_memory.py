"""Reads the memory of other processes without opening a file in /proc."""

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Callable, Sequence


class _Part(ctypes.Structure):
    """struct iovec of sys/uio.h."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


_MOST_PARTS = 1024
"""Of one call: UIO_MAXIOV."""
WORD, NUMBER = struct.Struct("<Q"), struct.Struct("<I")
"""Of 64 and of 32 bits."""


def memory_of(pid: int, start: int, size: int) -> bytes:
    """Up to `size` bytes from address `start` of process `pid`, a pid of the collector's namespace. Raises OSError.

    It needs the right to trace the process: CAP_SYS_PTRACE for processes of other users. A file in /proc would also
    need the right to open that file.
    """
    content = ctypes.create_string_buffer(size)
    here, there = _Part(ctypes.addressof(content), size), _Part(start, size)
    count = _process_vm_readv()(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if count < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return content.raw[:count]


def part_of(pid: int, start: int, size: int) -> bytes:
    """The same; empty if the process has no memory there. Raises OSError."""
    try:
        return memory_of(pid, start, size)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise
        return b""


def number_at(pid: int, address: int, form: struct.Struct = WORD) -> int:
    """The number at an address; 0 if the process has no memory there. Raises OSError."""
    content = part_of(pid, address, form.size)
    return int(form.unpack(content)[0]) if len(content) == form.size else 0


def memories_of(pid: int, starts: Sequence[int], size: int) -> list[bytes]:
    """`size` bytes from each of the addresses, with few system calls; empty where there is no memory. Raises OSError.

    The right that it needs is that of `memory_of`.
    """
    contents: list[bytes] = []
    while len(contents) < len(starts):
        parts = [_Part(start, size) for start in starts[len(contents) : len(contents) + _MOST_PARTS]]
        there = (_Part * len(parts))(*parts)
        content = ctypes.create_string_buffer(size * len(parts))
        here = _Part(ctypes.addressof(content), len(content))
        count = _process_vm_readv()(pid, ctypes.byref(here), 1, ctypes.byref(there), len(parts), 0)
        if count < 0 and ctypes.get_errno() != errno.EFAULT:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        complete = max(count, 0) // size
        pieces = memoryview(content)
        contents += [bytes(pieces[at * size : (at + 1) * size]) for at in range(complete)]
        if complete < len(parts):  # the call ends at the first address without memory
            contents.append(b"")
    return contents


@functools.cache
def _process_vm_readv() -> Callable[..., int]:
    """The function of the C library (glibc 2.15, musl 1.1)."""
    function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    parts = (ctypes.c_void_p, ctypes.c_ulong)
    function.argtypes, function.restype = (ctypes.c_int, *parts, *parts, ctypes.c_ulong), ctypes.c_ssize_t
    return function
