"""The csv exporter: writes the rows of a batch in a thread, completely or not at all."""

import asyncio
import os
import stat
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from otel_zernel.batch import Batch
from otel_zernel.component import ComponentConfig, Context, Exporter
from otel_zernel.errors import CannotStart, Retryable, invalid_is_permanent
from otel_zernel.types import Permissions
from otel_zernel_exporters.csv.rows import HEADER, CsvRows
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP, append_whole, open_appending


class CsvExporterConfig(ComponentConfig):
    """The file to write."""

    path: Path
    """The path of the file. Its directory must exist."""
    append: bool = False
    """Append to an existing file. Else it is emptied at start."""
    file_permissions: Permissions = OWNER_AND_GROUP
    """The permissions of the file if it is created, in octal. The umask applies too."""


class CsvExporter(Exporter):
    """Writes the metrics of GPUs to a CSV file in dcgm-exporter's long layout. The `csv` receiver replays it."""

    Config = CsvExporterConfig
    stability = "beta"
    signals = frozenset({"metrics"})

    def __init__(self, config: CsvExporterConfig, context: Context) -> None:
        super().__init__(config, context)
        self._file: FileIO | None = None

    async def __aenter__(self) -> Self:
        try:
            self._file = await asyncio.to_thread(self._open)
        except OSError as error:
            raise CannotStart(
                f"{self.context.path}::path: cannot write {self.config.path}: {error.strerror}; choose another path"
            ) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()
        self._file = None

    async def export(self, batch: Batch) -> None:
        try:
            with invalid_is_permanent():
                await asyncio.to_thread(self._write, batch)
        except OSError as error:
            raise Retryable(f"cannot write {self.config.path}: {error.strerror}") from error

    def _open(self) -> FileIO:
        opened: set[str] = self.context.kept.setdefault("opened", set())  # a reload must not empty the file again
        append = self.config.append or str(self.config.path) in opened
        file = open_appending(self.config.path, self.config.file_permissions)
        opened.add(str(self.config.path))
        if not append and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
        if not os.fstat(file.fileno()).st_size:
            append_whole(file, HEADER.encode())
        return file

    def _write(self, batch: Batch) -> None:
        assert self._file is not None  # noqa: S101  # entered before the first batch
        rows = CsvRows(batch.metrics)
        if rows.text:
            append_whole(self._file, rows.text.encode())
        for reason, count in rows.lost.items():  # after the write: a failed batch is retried
            self.context.drop(count, reason)
