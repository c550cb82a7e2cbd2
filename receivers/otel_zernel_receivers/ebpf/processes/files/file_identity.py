"""The identity of an open file, by which the receiver attaches probes to each file once.

The kernel keeps probes by inode. On overlayfs, containers of one image share an inode but see it under different device
numbers. A probe in one container hits in all of them, so attaching in each would count every call several times. A file
handle of overlayfs identifies the inode in the lower layer, and is the same in every container.
"""

import ctypes
import functools
import os
from collections.abc import Callable
from typing import NamedTuple

# Since Linux 6.5. Before, overlayfs gives no handles, so each container's view counts as another file.
_AT_HANDLE_FID = 0x200
_AT_EMPTY_PATH = 0x1000
_OVERLAY_HANDLES = {0xF8, 0xFB}  # OVL_FILEID_V1, OVL_FILEID_V0 (fs/overlayfs/overlayfs.h)
_MAX_HANDLE = 128  # MAX_HANDLE_SZ


class FileIdentity(NamedTuple):
    """Two identities are equal exactly if a probe on one file hits in the other."""

    device: int
    inode: int
    layer: bytes = b""
    """On overlayfs, the handle of the file in its layer, plus its change time. Device and inode are then 0."""

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
    # If a container changes a file's mode or owner, it gets a copy with the handle of the original. Only the change
    # time (ctime) differs.
    return FileIdentity(0, 0, handle + status.st_ctime_ns.to_bytes(8, "little", signed=True))


def _overlay_handle(fd: int) -> bytes:
    """The handle of the inode in its layer; empty if the file is not on overlayfs, or overlayfs gives no handle."""
    name_to_handle_at = _name_to_handle_at()
    handle, mount = _Handle(size=_MAX_HANDLE), ctypes.c_int()
    flags = _AT_EMPTY_PATH | _AT_HANDLE_FID
    if not name_to_handle_at or name_to_handle_at(fd, b"", ctypes.byref(handle), ctypes.byref(mount), flags):
        return b""
    return bytes(handle.content[: handle.size]) if handle.kind in _OVERLAY_HANDLES else b""


@functools.cache
def _name_to_handle_at() -> Callable[..., int] | None:
    """The function of the C library; None if it does not have it."""
    return getattr(ctypes.CDLL(None), "name_to_handle_at", None)
