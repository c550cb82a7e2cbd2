"""Finds files by paths and globs. Unlike Python's glob, it reports a folder that cannot be listed."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePath

from otel_zernel_libraries.files.sources import Unreadable


@dataclass(slots=True)
class Listing:
    """The files that match some patterns."""

    files: dict[str, os.stat_result] = field(default_factory=dict)
    """Names and status, in the order of the patterns. The matches of a glob are sorted."""
    problems: dict[str, Unreadable] = field(default_factory=dict)
    """The folders and files that could not be examined, by name. If there is one, files may be missing."""


def list_files(patterns: Iterable[str], exclude: Iterable[str] = ()) -> Listing:
    """The existing files that match paths and globs, without duplicates. `**` matches any number of folders.

    A glob matches regular files only; a path may also name a pipe or a device. A missing folder has no files, and is
    no problem.
    """
    listing = Listing()
    excluded = {name for pattern in exclude for name in _matching(pattern, listing.problems)}
    for pattern in patterns:
        for name in _matching(pattern, listing.problems):
            status = None if name in excluded else _status(name, listing.problems)
            if status and (stat.S_ISREG(status.st_mode) or (name == pattern and not stat.S_ISDIR(status.st_mode))):
                listing.files.setdefault(name, status)
    return listing


def _status(name: str, problems: dict[str, Unreadable]) -> os.stat_result | None:
    try:
        return os.stat(name)  # noqa: PTH116  # a Path for each of 10,000 files costs as much again
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problems[name] = Unreadable(f"cannot examine {name}: {error.strerror}")
        return None


def _matching(pattern: str, problems: dict[str, Unreadable]) -> Sequence[str]:
    """The names that match a pattern. A path without wildcards matches itself, whether it exists or not."""
    if not glob.has_magic(pattern) or os.path.lexists(pattern):
        return [pattern]
    return sorted(_walk("", PurePath(pattern).parts, problems))


def _walk(folder: str, parts: Sequence[str], problems: dict[str, Unreadable]) -> Iterator[str]:
    """The names below `folder` that match the parts of a pattern."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _walk(folder, rest or ("*",), problems)
        for entry in _entries(folder, problems):
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, parts, problems)
        return
    if glob.has_magic(part):
        names = [entry.path for entry in _entries(folder, problems) if _fits(entry.name, part)]
    else:
        names = [os.path.join(folder, part)]  # noqa: PTH118  # as above
    for name in names:
        if rest:
            yield from _walk(name, rest, problems)
        else:
            yield name


def _fits(name: str, part: str) -> bool:
    """A wildcard does not match a leading dot, as in a shell."""
    return fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))


def _entries(folder: str, problems: dict[str, Unreadable]) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder or ".") as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        problems[folder] = Unreadable(f"cannot list {folder}: {error.strerror}")
        return ()
