"""Writing so that a power failure loses nothing."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_MOST_PARTS: Final = 1024
"""IOV_MAX of Linux: the parts of one write."""


def sync_data(file: int) -> None:
    """Makes the content of a file durable. Raises `OSError`: the kernel may then have dropped the content."""
    getattr(os, "fdatasync", os.fsync)(file)  # macOS has no fdatasync


def sync_directory(directory: Path) -> None:
    """Makes the creation and the deletion of files durable. Raises `OSError`."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def replace_file(path: Path, content: bytes) -> None:
    """Replaces a file by one with this content. After a crash, it has the old content or the new one.

    Raises `OSError`; then the old content stays.
    """
    new = path.with_name(f"{path.name}.new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        try:
            write_at(file, [content], 0)
            os.fsync(file)
        finally:
            os.close(file)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_at(file: int, parts: Sequence[bytes], start: int) -> None:
    """Writes all parts, one after another. Raises `OSError`; a part may then be written."""
    for index in range(0, len(parts), _MOST_PARTS):
        group = parts[index : index + _MOST_PARTS]
        written, size = os.pwritev(file, group, start), sum(map(len, group))
        if written < size:
            _write_rest(file, memoryview(b"".join(group))[written:], start + written)
        start += size


def _write_rest(file: int, rest: memoryview, start: int) -> None:
    while rest:
        written = os.pwrite(file, rest, start)
        rest, start = rest[written:], start + written
