"""Which file an open descriptor really is: what decides whether a probe is there already.

The kernel keeps probes by inode. On overlayfs, containers of one image see one file under different device numbers, and
a probe on one of them hits in all: attaching to each would count every call several times. A file handle of overlayfs
names the inode below, and it is the same in every container.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from typing import NamedTuple

# Linux 6.5, as old as uprobe.multi; before, overlayfs gives no handles and files count as different.
_AT_HANDLE_FID = 0x200
_AT_EMPTY_PATH = 0x1000
_OVERLAY_HANDLES = {0xF8, 0xFB}  # OVL_FILEID_V1, OVL_FILEID_V0 (fs/overlayfs/overlayfs.h)
_MAX_HANDLE = 128  # MAX_HANDLE_SZ


class FileIdentity(NamedTuple):
    """Equal for two descriptors exactly if a probe on one hits in the other."""

    device: int
    inode: int
    layer: bytes = b""
    """On overlayfs, the handle of the file below with its time of change; device and inode are 0 then."""

    @property
    def on_overlay(self) -> bool:
        return bool(self.layer)


class _Handle(ctypes.Structure):
    """struct file_handle of fcntl.h."""

    _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("content", ctypes.c_ubyte * _MAX_HANDLE))


def identity_of(fd: int) -> FileIdentity:
    """The identity of an open file. Raises OSError."""
    status = os.fstat(fd)
    handle = _overlay_handle(fd)
    if not handle:
        return FileIdentity(status.st_dev, status.st_ino)
    # A file whose mode or owner a container changed is a copy of its own, but still has the handle of its origin. Only
    # its time of change tells the two apart.
    return FileIdentity(0, 0, handle + status.st_ctime_ns.to_bytes(8, "little", signed=True))


def _overlay_handle(fd: int) -> bytes:
    """The handle of the inode below; empty if this is no overlayfs, or one that does not tell."""
    name_to_handle_at = _name_to_handle_at()
    handle, mount = _Handle(size=_MAX_HANDLE), ctypes.c_int()
    flags = _AT_EMPTY_PATH | _AT_HANDLE_FID
    if not name_to_handle_at or name_to_handle_at(fd, b"", ctypes.byref(handle), ctypes.byref(mount), flags):
        return b""
    return bytes(handle.content[: handle.size]) if handle.kind in _OVERLAY_HANDLES else b""


@functools.cache
def _name_to_handle_at() -> Callable[..., int] | None:
    """The function of the C library; None where it has none."""
    return getattr(ctypes.CDLL(None), "name_to_handle_at", None)
