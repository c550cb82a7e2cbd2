"""Errors of SQLite in one sentence."""

import errno
import sqlite3
from pathlib import Path
from typing import Final

from otel_zernel.errors import CannotStart, Permanent, Retryable
from otel_zernel.text import one_line

_WORDS: Final = {
    "SQLITE_FULL": "the disk is full; make room or shorten the retention",
    "SQLITE_READONLY": "the file or its directory is read-only; change its permissions",
    "SQLITE_CANTOPEN": "the file cannot be opened; create its directory, and let this user write there",
    "SQLITE_BUSY": "another program holds the lock of the file; end it",
    "SQLITE_LOCKED": "another program holds the lock of the file; end it",
    "SQLITE_CORRUPT": "the file is damaged; move it away, or repair it with sqlite3 FILE .recover",
    "SQLITE_NOTADB": "the file is no SQLite database; move it away or choose another path",
    "SQLITE_IOERR": "the disk reports an error; see the log of the kernel",
    "SQLITE_PERM": "this user may not use the file; change its permissions",
    "SQLITE_AUTH": "this user may not use the file; change its permissions",
}
_OF_SYSTEM: Final = {
    errno.ENOENT: "its directory does not exist; create it",
    errno.EACCES: "this user may not write there; change the permissions of the directory",
    errno.EROFS: _WORDS["SQLITE_READONLY"],
    errno.ENOSPC: _WORDS["SQLITE_FULL"],
}
_NEVER: Final = frozenset({"SQLITE_TOOBIG", "SQLITE_MISMATCH", "SQLITE_CONSTRAINT"})
"""Codes for rows that SQLite will never accept."""
_HARMLESS: Final = frozenset({"SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED", *_NEVER})
"""The next transaction may succeed on the same connection."""


def sqlite_cause(error: sqlite3.Error | OSError) -> str:
    """The cause and the remedy."""
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0) or error.strerror or str(error)
    return _WORDS.get(_code(error)) or one_line(error)


def breaks_connection(error: Exception) -> bool:
    """Whether the file has to be opened again."""
    return not isinstance(error, sqlite3.Error) or _code(error) not in _HARMLESS


def failed_write(path: Path, error: sqlite3.Error | OSError | CannotStart) -> Retryable | Permanent:
    """The error of an export."""
    if isinstance(error, CannotStart):
        return Retryable(str(error))
    if isinstance(error, sqlite3.Error) and _code(error) in _NEVER:
        return Permanent(f"{path} does not accept the batch: {one_line(error)}")
    return Retryable(f"cannot write {path}: {sqlite_cause(error)}")


def failed_start(setting: str, path: Path, error: sqlite3.Error | OSError) -> CannotStart:
    """The error of a start."""
    return CannotStart(f"{setting}: cannot open {path}: {sqlite_cause(error)}")


def _code(error: sqlite3.Error) -> str:
    """The primary code, such as SQLITE_IOERR of SQLITE_IOERR_WRITE. Empty for errors of Python's module."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return "_".join(name.split("_")[:2])
