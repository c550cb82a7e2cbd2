"""The file exporter: encodes and writes batches in a thread, into a file of records with rotation.

A record is written completely or not at all.
"""

import asyncio
import contextlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Self

from otel_zernel.batch import STABLE_SIGNALS, Batch, split_batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import CannotStart, Retryable, invalid_is_permanent
from otel_zernel.otlp.json import to_json
from otel_zernel.runtime.tasks import cancel
from otel_zernel_exporters.file.config import FileConfig, RotationConfig
from otel_zernel_libraries import zstd
from otel_zernel_libraries.files.writing import append_whole, open_appending

_STAMP = "%Y-%m-%dT%H-%M-%S.%f"


class RecordFile:
    """Appends records to a file. Every method blocks, is thread-safe and raises `OSError`.

    `permissions` are those of new files, in octal. `now_ns` is the wall clock for the names of old files.
    """

    def __init__(
        self, path: Path, rotation: RotationConfig | None, permissions: str, now_ns: Callable[[], int]
    ) -> None:
        self._path = path
        self._rotation = rotation
        self._permissions = permissions
        self._now_ns = now_ns
        self._lock = Lock()
        self._file: FileIO | None = None
        self._size = 0
        self._regular = False
        self._unsynced = False

    def open(self, *, append: bool) -> None:
        """Opens the file, and empties it unless `append` is set."""
        with self._lock:
            self._open(append=append)

    def write(self, record: bytes) -> None:
        """Appends the record. After an error the file is unchanged."""
        with self._lock:
            if self._must_rotate(len(record)):
                self._rotate()
            file = self._file or self._open(append=True)
            self._unsynced = True
            append_whole(file, record)
            self._size += len(record)

    def sync(self) -> None:
        """Returns once all written records are on the disk."""
        with self._lock:
            self._sync()

    def close(self) -> None:
        """Syncs and closes the file. Safe to call twice."""
        with self._lock:
            self._close()

    def _open(self, *, append: bool) -> FileIO:
        self._file = open_appending(self._path, self._permissions)
        self._regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if self._regular and not append:
            self._file.truncate(0)
        self._size = os.fstat(self._file.fileno()).st_size
        return self._file

    def _sync(self) -> None:
        if self._file and self._regular and self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = False

    def _close(self) -> None:
        try:
            self._sync()
        finally:
            if self._file:
                self._file.close()
            self._file = None

    def _must_rotate(self, more: int) -> bool:
        limit = self._rotation.max_megabytes * 2**20 if self._rotation else None
        return limit is not None and self._regular and self._size > 0 and self._size + more > limit

    def _rotate(self) -> None:
        self._close()
        self._path.rename(self._name(self._rotation_time()))
        self._open(append=True)
        for outdated in self._outdated():
            with contextlib.suppress(OSError):  # retried at the next rotation
                outdated.unlink()

    def _rotation_time(self) -> datetime:
        """The current time, or 1 ms after the newest old file: no name is used twice, even if the clock goes back."""
        newest = max((time + timedelta(milliseconds=1) for time, _ in self._old_files()), default=None)
        return max(self._now(), newest) if newest else self._now()

    def _outdated(self) -> list[Path]:
        """The old files beyond `max_backups` or `max_days`."""
        if self._rotation is None:
            return []
        old = self._old_files()
        excess = len(old) - self._rotation.max_backups if self._rotation.max_backups else 0
        oldest = self._now() - timedelta(days=self._rotation.max_days) if self._rotation.max_days else None
        return [path for index, (time, path) in enumerate(old) if index < excess or (oldest and time < oldest)]

    def _old_files(self) -> list[tuple[datetime, Path]]:
        """The time and path of each old file, by its name, oldest first."""
        siblings = self._path.parent.iterdir()
        return sorted((time, path) for path in siblings if (time := self._time_of(path)))

    def _now(self) -> datetime:
        now = datetime.fromtimestamp(self._now_ns() // 1_000_000 / 1000, UTC)
        return now.astimezone() if self._rotation and self._rotation.localtime else now

    def _name(self, time: datetime) -> Path:
        milliseconds = time.strftime(_STAMP)[:-3]
        return self._path.with_name(f"{self._path.stem}-{milliseconds}{self._path.suffix}")

    def _time_of(self, path: Path) -> datetime | None:
        pattern = f"{_literal(self._path.stem)}-{_STAMP}{_literal(self._path.suffix)}"
        try:
            return datetime.strptime(path.name, pattern).replace(tzinfo=self._now().tzinfo)
        except ValueError:
            return None


def _literal(text: str) -> str:
    return text.replace("%", "%%")


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

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._close)
        try:
            await asyncio.to_thread(self._open)
        except OSError as error:
            raise CannotStart(
                f"{self.context.path}::path: cannot write {self.config.path}: {error.strerror}; "
                "choose another path, or set create_directory if only the directory is missing"
            ) from error
        syncing = asyncio.create_task(self._sync_regularly(), name=f"sync {self.config.path}")
        self._stack.push_async_callback(cancel, syncing)
        return self

    async def _close(self) -> None:
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
            yield from filter(None, map(batch.bytes_of, STABLE_SIGNALS))
            return
        for piece in split_batch(batch, LINE_ITEMS):
            yield from (to_json(piece.message(signal)) for signal in STABLE_SIGNALS if piece.count_of(signal))

    def _frame(self, message: bytes) -> bytes:
        """JSON ends with a newline; binary data begins with its length, 4 bytes big-endian, as in otelcol's files."""
        if self.config.compression == "zstd":
            message = zstd.compress(message)
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
