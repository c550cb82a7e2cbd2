"""Small values, a file each, replaced as a whole."""

import asyncio
import hashlib
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_zernel.component import Logger
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.storage import KeyValues, StorageFailed
from otel_zernel_extensions.file_storage.disk import Disk
from otel_zernel_extensions.file_storage.journal.layout import crc32

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
        found = await run_in_thread(lambda: self._read(self._path(key)))
        return found[1] if found and found[0] == key else None

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
        return sorted(found[0] for path in paths if (found := self._read(path)))

    def _read(self, path: Path) -> tuple[str, bytes] | None:
        """Key and value; None if there is none that can be read."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._logger.warning("cannot read %s: %s; its value counts as missing", path, error.strerror)
            return None
        found = _decode(data)
        if found is None:
            self._logger.warning("%s was changed on the disk; its value counts as missing", path)
        return found

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
