"""Writing to files without a buffer, the permissions of files that are created, and temporary files for `ssl`."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

OWNER_AND_GROUP = "0640"
"""The default permissions of new files: telemetry may name users, hosts and commands."""


def open_appending(path: Path, permissions: str) -> FileIO:
    """Opens a file for writing at its end, and creates it with `permissions` if it is missing.

    An existing file keeps its permissions. Raises `OSError`.
    """
    return FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags, int(permissions, 8)))


def write_whole(file: FileIO, content: bytes) -> None:
    """Writes all of the content: a single `write` may accept only a part.

    Raises `OSError`; a part may then be written.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def append_whole(file: FileIO, content: bytes) -> None:
    """Appends all of the content, or leaves the file unchanged and raises `OSError`.

    A pipe or a device cannot be left unchanged: it may have a part then.
    """
    end = os.fstat(file.fileno()).st_size
    try:
        write_whole(file, content)
    except OSError:
        with contextlib.suppress(OSError):  # a pipe and a device have no length
            file.truncate(end)
        raise


@contextmanager
def file_with(content: bytes) -> Iterator[str]:
    """A path with this content: `ssl` loads certificates and keys from files only. On Linux it is in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            with contextlib.suppress(OSError):
                Path(path).unlink()
