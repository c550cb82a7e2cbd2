"""Files that a configuration names and that do not exist, or that the collector may not read."""

import glob
import os
from collections.abc import Iterator
from typing import Any

from otel_zernel.config.marked import marked_fields
from otel_zernel.config.yaml12 import Path
from otel_zernel.text import quoted
from otel_zernel.types import ReadableFile

_STDIN = "-"


def missing_files(config: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """A warning for each field that is marked with `ReadableFile` and names no readable file."""
    for where, value, _ in marked_fields(config, path, ReadableFile):
        if isinstance(value, list | tuple):
            for index, pattern in enumerate(value):
                yield from _of_pattern((*where, index), str(pattern))
        elif value:
            yield from _of_file(where, str(value))


def _of_pattern(path: Path, pattern: str) -> Iterator[tuple[Path, str]]:
    if pattern == _STDIN:
        return
    if not glob.has_magic(pattern):
        yield from _of_file(path, pattern)
    elif next(glob.iglob(pattern, recursive=True), None) is None:  # noqa: PTH207  # as above
        yield path, f"no file matches {quoted(pattern)}{_folder(pattern)}; check the pattern"


def _of_file(path: Path, file: str) -> Iterator[tuple[Path, str]]:
    if not os.path.exists(file):  # noqa: PTH110  # a Path would change the text
        yield path, f"{quoted(file)} does not exist{_folder(file)}; create it, or correct the path"
    elif not os.access(file, os.R_OK):
        yield path, f"{quoted(file)} is not readable; allow the collector's user to read it"


def _folder(file: str) -> str:
    """The working directory, if the path is relative: the usual cause."""
    return "" if os.path.isabs(file) else f" in the working directory {quoted(os.getcwd())}"  # noqa: PTH109, PTH117
