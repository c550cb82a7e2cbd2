"""Writing so that a power failure loses nothing."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_MOST_PARTS: Final = 1024
"""IOV_MAX of Linux: the parts of one write."""
_MACOS_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS, `fsync` leaves the data in the disk's own cache, and `fdatasync` does not exist."""


class Disk:
    """The system calls, as a parameter: tests pass a disk that fails. All raise `OSError`."""

    def read(self, file: int, length: int, start: int) -> bytes:
        """Reads a part of a file; shorter at its end."""
        return os.pread(file, length, start)

    def write(self, file: int, parts: Sequence[bytes], start: int) -> None:
        """Writes all parts, one after another. After an error, a part may be written."""
        for index in range(0, len(parts), _MOST_PARTS):
            group = parts[index : index + _MOST_PARTS]
            written, size = os.pwritev(file, group, start), sum(map(len, group))
            if written < size:
                _write_rest(file, memoryview(b"".join(group))[written:], start + written)
            start += size

    def truncate(self, file: int, size: int) -> None:
        """Cuts the file."""
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        """Makes the content of a file durable. After an error, the kernel may have dropped the content."""
        if _MACOS_SYNC is None:
            os.fdatasync(file)
        else:
            fcntl.fcntl(file, _MACOS_SYNC)

    def sync_directory(self, directory: Path) -> None:
        """Makes the creation and the deletion of files durable."""
        file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def replace(self, path: Path, content: bytes) -> None:
        """Replaces a file by one with this content. After a crash or an error, it has the old content or the new."""
        new = path.with_name(f"{path.name}.new")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            try:
                self.write(file, [content], 0)
                self.sync(file)
            finally:
                os.close(file)
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self.sync_directory(path.parent)


def _write_rest(file: int, rest: memoryview, start: int) -> None:
    while rest:
        written = os.pwrite(file, rest, start)
        rest, start = rest[written:], start + written
