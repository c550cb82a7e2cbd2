"""The file exporter: encodes and writes batches in a thread."""

import asyncio
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import zstandard

from otel_zernel.batch import SIGNALS, Batch, split_batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import CannotStart, Retryable, invalid_is_permanent
from otel_zernel.otlp.json import logs_json, metrics_json, spans_json
from otel_zernel_exporters.file.config import FileConfig
from otel_zernel_exporters.file.record_file import RecordFile

LINE_ITEMS = 1000
"""The maximum number of points, spans or log records in a line: many log readers reject lines over 1 MiB."""


class FileExporter(Exporter):
    """Writes OTLP to a file, as lines of JSON or as protobuf.

    Each batch is written completely or not at all. A batch that does not fit on the disk is retried.
    """

    Config = FileConfig
    stability = "beta"

    def __init__(self, config: FileConfig, context: Context) -> None:
        super().__init__(config, context)
        self._file = RecordFile(config.path, config.rotation, config.file_permissions, context.clock.time_ns)
        self._syncing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._open)
        except OSError as error:
            raise CannotStart(
                f"{self.context.path}::path: cannot write {self.config.path}: {error.strerror}; "
                "choose another path, or set create_directory if only the directory is missing"
            ) from error
        self._syncing = asyncio.create_task(self._sync_regularly(), name=f"sync {self.config.path}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._syncing:
            self._syncing.cancel()
            await asyncio.wait([self._syncing])
        try:
            await asyncio.to_thread(self._file.close)
        except OSError as closing:
            self.context.logger.error("cannot flush %s: %s", self.config.path, closing.strerror)

    async def export(self, batch: Batch) -> None:
        try:
            with invalid_is_permanent():
                await asyncio.to_thread(self._write, batch)
        except OSError as error:
            raise Retryable(f"cannot write {self.config.path}: {error.strerror}") from error

    def _open(self) -> None:
        if self.config.create_directory:
            mode = int(self.config.directory_permissions, 8)
            self.config.path.parent.mkdir(mode, parents=True, exist_ok=True)
        opened: set[str] = self.context.kept.setdefault("opened", set())  # a reload must not empty the file again
        append = self.config.append or self.config.rotation is not None or str(self.config.path) in opened
        self._file.open(append=append)
        opened.add(str(self.config.path))

    def _write(self, batch: Batch) -> None:
        # One write for the whole batch: after a failure the file has no part of it, so a retry writes nothing twice.
        record = b"".join(self._frame(message) for message in self._encode(batch))
        if record:
            self._file.write(record)

    def _encode(self, batch: Batch) -> Iterator[bytes]:
        if self.config.format == "proto":
            yield from filter(None, map(batch.bytes_of, SIGNALS))
            return
        for piece in split_batch(batch, LINE_ITEMS):
            if piece.point_count:
                yield metrics_json(piece.metrics)
            if piece.span_count:
                yield spans_json(piece.spans)
            if piece.log_record_count:
                yield logs_json(piece.logs)

    def _frame(self, message: bytes) -> bytes:
        """JSON ends with a newline; binary data begins with its length, 4 bytes big-endian, as in otelcol's files."""
        if self.config.compression == "zstd":
            message = zstandard.compress(message)
        elif self.config.format == "json":
            return message + b"\n"
        return struct.pack(">i", len(message)) + message

    async def _sync_regularly(self) -> None:
        while True:
            await self.context.clock.sleep(self.config.flush_interval)
            try:
                await asyncio.to_thread(self._file.sync)
            except OSError as error:
                self.context.logger.warning("cannot flush %s: %s", self.config.path, error.strerror)
