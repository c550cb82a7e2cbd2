"""Saves bad rows in a file."""

from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from opentelemetry.metrics import Meter

from otel_zernel_libraries.files.sources import Problems
from otel_zernel_libraries.files.writing import append_whole, open_appending
from otel_zernel_receivers.csv.declared import UNSAVED_REJECTS


class Rejects:
    """The file of bad rows. If it cannot be written, for example on a full disk, its rows are counted instead."""

    def __init__(self, path: Path, permissions: str, problems: Problems, meter: Meter) -> None:
        """Opens the file for appending. Raises `OSError`."""
        self._path = path
        self._problems = problems
        self._unsaved = meter.create_counter(*UNSAVED_REJECTS.counter)
        self._file: FileIO = open_appending(path, permissions)

    def write(self, rows: Sequence[bytes]) -> None:
        """Appends all rows or none. Each is a line without its line end."""
        try:
            append_whole(self._file, b"".join(row + b"\n" for row in rows))
        except OSError as error:
            self._unsaved.add(len(rows))
            self._problems.warn(
                "rejects", f"cannot save bad rows in {self._path}: {error.strerror}; the good rows go on"
            )
        else:
            self._problems.clear("rejects")

    def close(self) -> None:
        self._file.close()
