"""A file that grows, is truncated, and is renamed or removed."""

import os
from hashlib import blake2b
from pathlib import Path

from otel_zernel_libraries.files.positions import Position
from otel_zernel_libraries.files.sources import encoding_of

GRACE = 5.0
"""Seconds that a renamed or removed file is still read after its last byte: its writer may still have it open."""
_PRINTED = 1024
"""The bytes at the beginning of a file, and those before the position, that its fingerprint covers."""
_TAIL = 64
"""The last bytes read. If they changed when the file has grown, it was truncated and written again meanwhile."""


def key_of(status: os.stat_result) -> str:
    """Device and inode number, which a file keeps when it is renamed."""
    return f"{status.st_dev}:{status.st_ino}"


class GrowingFile:
    """One open file. `read` returns None while there are no new bytes."""

    def __init__(self, name: str) -> None:
        """Opens the file. Raises `OSError`."""
        self.name = name
        self._file = Path(name).open("rb", buffering=0)  # noqa: SIM115  # `close` closes it
        self.key = key_of(os.fstat(self._file.fileno()))
        self.offset = 0
        """Bytes that were read, from the beginning of the file."""
        self._tail = b""
        self._overwritten = False
        self._ended = False
        self._gone_since: float | None = None

    def close(self) -> None:
        """Safe to call twice."""
        self._file.close()

    @property
    def encoding(self) -> str:
        """Gzip, zstd or UTF-16, by its first bytes. Empty for all others."""
        return encoding_of(self._at(0, 4))

    def read(self, size: int) -> bytes | None:
        """The next bytes; None while there are none; empty at the end of a file that is gone. Raises `OSError`."""
        if self._tail and self._at(self.offset - len(self._tail), len(self._tail)) != self._tail:
            self._overwritten = True
            return b"" if self._ended else None
        data = self._at(self.offset, size)
        if not data:
            return b"" if self._ended else None
        self.offset += len(data)
        self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]
        self._gone_since = None
        return data

    def has_grown(self, status: os.stat_result | None = None) -> bool:
        """Whether there are bytes to read, or the file was truncated. `status` saves the call that asks for it."""
        return (status or os.fstat(self._file.fileno())).st_size != self.offset

    @property
    def truncated(self) -> bool:
        """Whether the bytes before the offset are not those that were read. To be asked if there are no new bytes."""
        return self._overwritten or os.fstat(self._file.fileno()).st_size < self.offset

    @property
    def removed(self) -> bool:
        """Whether the file has no name any more."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def end(self) -> None:
        """From here on, `read` returns an empty end instead of None."""
        self._ended = True

    def rewind(self) -> None:
        """Goes back to the beginning."""
        self._ended = self._overwritten = False
        self.offset = 0
        self._tail = b""

    def skip_to_end(self) -> None:
        """Goes to the present end: only later bytes are read."""
        self.skip_to(os.fstat(self._file.fileno()).st_size)

    def skip_to(self, offset: int) -> None:
        """Goes to an offset: only later bytes are read."""
        self.offset = offset
        self._tail = self._at(max(0, self.offset - _TAIL), min(_TAIL, self.offset))

    def fingerprint(self, offset: int) -> str:
        """Identifies the content before an offset: a hash of its first and its last KiB."""
        start = max(0, offset - _PRINTED)
        content = self._at(0, min(offset, _PRINTED)) + self._at(start, offset - start)
        return blake2b(content, digest_size=16).hexdigest()

    def go_on(self, position: Position) -> bool:
        """Goes to a position. False if it is the beginning, or if the file does not have the content of that time."""
        if not 0 < position.offset <= os.fstat(self._file.fileno()).st_size:
            return False
        if self.fingerprint(position.offset) != position.fingerprint:
            return False
        self.skip_to(position.offset)
        return True

    def is_finished(self, now: float, *, exists: bool) -> bool:
        """Whether the file can be closed: it is gone from its path since `GRACE` s and read to its last byte.

        To be asked if there are no new bytes. `now` is in seconds of a monotonic clock.
        """
        if exists:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif self._ended:
            return True
        elif now - self._gone_since > GRACE:
            self.end()  # the last line is read even without a line end
        return False

    def _at(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)
