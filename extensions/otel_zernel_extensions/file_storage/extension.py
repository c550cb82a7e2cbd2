"""The file_storage extension: a folder for each queue, and one for the values of each component."""

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from urllib.parse import unquote

from otel_zernel.component import Context, Finding, Logger
from otel_zernel.errors import CannotStart, ZernelError
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.storage import Journal, JournalView, KeyValues, Record, Storage, StorageFailed
from otel_zernel_extensions.file_storage.config import FileStorageConfig
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.layout import UnknownVersion, crc32
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits
from otel_zernel_extensions.file_storage.journal.recovery import recover
from otel_zernel_extensions.file_storage.journal.segments import StoredRecord, segment_files

_MAGIC: Final = b"ZERNELV\n"
_HEADER = struct.Struct("<8sHxxII")
"""Magic, version, length of the key, checksum of key and value. Then the key and the value follow."""
_VERSION: Final = 1
_ENDING: Final = ".value"


class FileKeyValues(KeyValues):
    """The values of one component in a folder. A file's name is a hash of the key, since keys are often long paths."""

    def __init__(self, folder: Path, logger: Logger) -> None:
        self._folder = folder
        self._logger = logger
        self._disk = Disk()
        self._writing = asyncio.Lock()

    async def get(self, key: str) -> bytes | None:
        entry = await run_in_thread(lambda: self._read(self._path(key)))
        return entry[1] if entry and entry[0] == key else None

    async def set(self, key: str, value: bytes | None) -> None:
        async with self._writing:
            await run_in_thread(lambda: self._write(self._path(key), key, value))

    async def keys(self) -> list[str]:
        return await run_in_thread(self._keys)

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}{_ENDING}"

    def _keys(self) -> list[str]:
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix == _ENDING]
        except FileNotFoundError:
            return []
        return sorted(read[0] for path in paths if (read := self._read(path)))

    def _read(self, path: Path) -> tuple[str, bytes] | None:
        """Key and value; None if there is none that can be read."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._logger.warning("cannot read %s: %s; its value counts as missing", path, error.strerror)
            return None
        decode = _decode(data)
        if decode is None:
            self._logger.warning("%s was changed on the disk; its value counts as missing", path)
        return decode

    def _write(self, path: Path, key: str, value: bytes | None) -> None:
        try:
            if value is None:
                with suppress(FileNotFoundError):
                    path.unlink()
                    self._disk.sync_directory(self._folder)
                return
            self._folder.mkdir(0o750, exist_ok=True)
            self._disk.replace(path, _encode(key, value))
        except OSError as error:
            raise StorageFailed(f"cannot write to {self._folder}: {error.strerror}") from error


def _encode(key: str, value: bytes) -> bytes:
    encoded = key.encode("utf-8", "surrogateescape")
    content = encoded + value
    return _HEADER.pack(_MAGIC, _VERSION, len(encoded), crc32(content)) + content


def _decode(data: bytes) -> tuple[str, bytes] | None:
    """Key and value; None if the data are damaged, or of a newer version."""
    if len(data) < _HEADER.size:
        return None
    magic, version, length, checksum = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    if (magic, version) != (_MAGIC, _VERSION) or len(content) < length or crc32(content) != checksum:
        return None
    return content[:length].decode("utf-8", "surrogateescape"), content[length:]


FILE_NAME: Final = "lock"


class DirectoryInUse(ZernelError):
    """Another owner has the lock. The message names it."""


class DirectoryLock:
    """A lock on a file with the pid of its owner. The kernel releases it when the process ends, however it ends."""

    _held: ClassVar[set[tuple[int, int]]] = set()
    """Device and inode of the files that this process has locked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises `DirectoryInUse`, or `OSError` if the directory cannot be used."""
        file = _open(self._directory)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = "another storage extension of this collector" if _identity(file) in self._held else _owner(file)
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise DirectoryInUse(owner) from error
            raise
        with suppress(OSError):  # a full or read-only disk: the lock holds without the pid
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        self._held.add(_identity(file))
        self._file = file

    def release(self) -> None:
        """Safe to call twice."""
        if self._file is not None:
            self._held.discard(_identity(self._file))
            os.close(self._file)
            self._file = None


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _open(directory: Path) -> int:
    """The lock file; on a read-only disk without such a file, the directory itself."""
    path = directory / FILE_NAME
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(directory, os.O_RDONLY | os.O_CLOEXEC)


def _owner(file: int) -> str:
    """The process that the lock file names: `the process with pid 812`."""
    with suppress(OSError):
        pid, _, host = os.pread(file, 300, 0).decode("ascii", "replace").strip().partition(" ")
        if pid.isdigit():
            return f"the process with pid {pid}" + (f" on {host}" if host != socket.gethostname() else "")
    return "another process"


_LONGEST: Final = 240
"""Characters. Linux and macOS allow 255 in a file name, and the folders have endings."""
_SAFE = re.compile(r"[a-z0-9_-]")


def file_name(component: str) -> str:
    """`exporters::otlp/backup` becomes `exporters%3a%3aotlp%2fbackup`. Raises `CannotStart` if it is too long.

    Capitals are escaped too, since some file systems take `A` and `a` for one letter.
    """
    name = "".join(character if _SAFE.fullmatch(character) else _escaped(character) for character in component)
    if len(name) > _LONGEST:
        raise CannotStart(f"{component}: the name is too long for a file; shorten it to at most {_LONGEST} characters")
    return name


def component_name(name: str) -> str:
    """The path of the component with this file name."""
    return unquote(name)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


class FileJournalView(JournalView):
    """The content of a folder when it was read."""

    def __init__(self, component: str, folder: Path) -> None:
        """Reads all segments. Raises `StorageFailed`."""
        try:
            recovered = recover(folder, Disk())
        except OSError as error:
            raise StorageFailed(f"cannot read {folder}: {error.strerror}") from error
        except UnknownVersion as error:
            raise StorageFailed(str(error)) from error
        self.component = component
        # A running collector may be writing the last record: only lost records are damage here.
        self.damage = tuple(damage for damage in recovered.damage if damage.records)
        self.disk_bytes = sum(scan.size for scan in recovered.scans)
        self._records = recovered.records

    def records(self) -> Iterator[Record]:
        return iter(self._records)

    def read(self, record: Record) -> bytes:
        if not isinstance(record, StoredRecord):
            raise TypeError("the record is of another journal")
        return record.read()


_QUEUE: Final = ".queue"
_VALUES: Final = ".values"
_RETRY: Final = 0.05
"""Seconds between two attempts to get the lock."""
_STARTED: Final = 30.0
"""Seconds after which every exporter has opened its queue."""


class FileStorageExtension(Storage):
    """Keeps queues and positions in files, so that a restart or a crash loses nothing."""

    Config = FileStorageConfig
    stability = "beta"

    def __init__(self, config: FileStorageConfig, context: Context) -> None:
        super().__init__(config, context)
        self._directory: Path = config.directory
        self._lock = DirectoryLock(config.directory)
        self._journals: dict[str, FileJournal] = {}
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await run_in_thread(self._find_directory)
            await self._acquire_lock()
        except OSError as error:
            raise self._cannot_use(error) from error
        self._report_ineffective()
        self._looking = asyncio.create_task(self._report_unused(), name=f"{self.context.path} unused queues")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking:
            self._looking.cancel()
        for journal in self._journals.values():
            await journal.close()
        self._journals.clear()
        self._lock.release()

    async def journal(self, component: str) -> Journal:
        if open_journal := self._journals.pop(component, None):
            await open_journal.close()
        folder = self._directory / (file_name(component) + _QUEUE)
        limits = JournalLimits(self.config.fsync, self.config.max_size)
        try:
            journal = await FileJournal.open(folder, self.context.clock, limits)
        except OSError as error:
            raise self._cannot_use(error) from error
        except UnknownVersion as error:
            raise CannotStart(
                f"{self.context.path}: {error}; install a newer release, or choose another directory"
            ) from error
        self._journals[component] = journal
        return journal

    async def key_values(self, component: str) -> KeyValues:
        return FileKeyValues(self._directory / (file_name(component) + _VALUES), self.context.logger)

    @classmethod
    def look(cls, directory: Path) -> Iterator[JournalView]:
        try:
            folders = sorted(path for path in directory.iterdir() if path.suffix == _QUEUE and path.is_dir())
        except OSError as error:
            raise StorageFailed(f"cannot read {directory}: {error.strerror}") from error
        for folder in folders:
            yield FileJournalView(component_name(folder.stem), folder)

    @classmethod
    def examine(cls, config: Any = None) -> Iterator[Finding]:
        directory = (config or FileStorageConfig()).directory
        if not directory.is_dir():
            if config and not config.create_directory:
                yield Finding("directory", f"{directory} does not exist; create it, or set create_directory", ok=False)
            return
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            yield Finding("directory", f"{directory} is not writable; change its owner or permissions", ok=False)
        free = shutil.disk_usage(directory).free
        yield Finding("space", f"{free / (1 << 30):.1f} GiB are free in {directory}")

    def _find_directory(self) -> None:
        directory = self._directory
        if self.config.create_directory:
            directory.mkdir(int(self.config.directory_permissions, 8), parents=True, exist_ok=True)
        next(directory.iterdir(), None)  # raises `OSError` if it cannot be read

    async def _acquire_lock(self) -> None:
        clock = self.context.clock
        give_up = clock.monotonic() + self.config.timeout
        while True:
            try:
                return self._lock.acquire()
            except DirectoryInUse as owner:
                if clock.monotonic() >= give_up:
                    raise CannotStart(
                        f"{self.context.path}::directory: {self._directory} is in use by {owner}; "
                        "stop it, or choose another directory"
                    ) from owner
            await clock.sleep(_RETRY)

    def _cannot_use(self, error: OSError) -> CannotStart:
        hint = "choose another directory"
        if isinstance(error, FileNotFoundError):
            hint = "create it, or set create_directory"
        return CannotStart(f"{self.context.path}::directory: cannot use {self._directory}: {error.strerror}; {hint}")

    async def _report_unused(self) -> None:
        """Warns of queues with batches that no exporter opens: their exporter was renamed or removed."""
        await self.context.clock.sleep(_STARTED)
        for component in await run_in_thread(self._queues_with_batches):
            if component not in self._journals:
                self.context.logger.warning(
                    "No exporter delivers the stored batches of %s; restore it, or run: otel-zernel queue export %s",
                    component,
                    self._directory,
                )

    def _queues_with_batches(self) -> list[str]:
        try:
            folders = sorted(path for path in self._directory.iterdir() if path.suffix == _QUEUE)
            return [component_name(folder.stem) for folder in folders if segment_files(folder)]
        except OSError:
            return []

    def _report_ineffective(self) -> None:
        keys = [key for key in ("compaction", "recreate") if getattr(self.config, key)]
        if keys:
            self.context.logger.info("%s: no effect here, since the format needs neither", " and ".join(keys))
