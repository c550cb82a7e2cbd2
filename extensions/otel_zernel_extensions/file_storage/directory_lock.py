"""The lock of a directory: one collector at a time."""

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from otel_zernel.errors import ZernelError

FILE_NAME: Final = "lock"


class DirectoryInUse(ZernelError):
    """Another owner has the lock. The message names it."""


class DirectoryLock:
    """A lock on a file with the pid of its owner. The kernel releases it when the process ends, however it ends."""

    _held: ClassVar[set[tuple[int, int]]] = set()
    """Device and inode of the files that this process has locked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises `DirectoryInUse`, or `OSError` if the directory cannot be used."""
        file = _open(self._directory)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = "another storage extension of this collector" if _identity(file) in self._held else _owner(file)
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise DirectoryInUse(owner) from error
            raise
        with suppress(OSError):  # a full or read-only disk: the lock holds without the pid
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        self._held.add(_identity(file))
        self._file = file

    def release(self) -> None:
        """Safe to call twice."""
        if self._file is not None:
            self._held.discard(_identity(self._file))
            os.close(self._file)
            self._file = None


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _open(directory: Path) -> int:
    """The lock file; on a read-only disk without such a file, the directory itself."""
    path = directory / FILE_NAME
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(directory, os.O_RDONLY | os.O_CLOEXEC)


def _owner(file: int) -> str:
    """The process that the lock file names: `the process with pid 812`."""
    with suppress(OSError):
        pid, _, host = os.pread(file, 300, 0).decode("ascii", "replace").strip().partition(" ")
        if pid.isdigit():
            return f"the process with pid {pid}" + (f" on {host}" if host != socket.gethostname() else "")
    return "another process"
