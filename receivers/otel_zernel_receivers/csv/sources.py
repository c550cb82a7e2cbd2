"""Opens files, compressed or not, and the standard input."""

import glob
import gzip
import io
import os
import select
import threading
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from otel_zernel_receivers.csv.config import STDIN
from otel_zernel_receivers.csv.lines import ReadBytes

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PIECE = 4096
"""Compressed bytes of zstd per step. Decompressed, they are usually 100 kB and at most 128 MiB."""
_POLL = 0.1
"""Seconds that a read of the standard input waits for data."""

READ_ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""The errors that opening and reading may raise."""


class ByteSource:
    """An open file or the standard input. `read` returns decompressed bytes. Closing it twice is safe."""

    def __init__(self, read: ReadBytes, *closing: Any) -> None:
        self.read = read
        self._stack = ExitStack()
        for one in closing:
            self._stack.callback(one.close)

    def close(self) -> None:
        self._stack.close()


def expand(patterns: Iterable[str]) -> list[str]:
    """The files that match paths and globs, without duplicates. The matches of a glob are sorted.

    Raises `FileNotFoundError` for a glob without a match.
    """
    files: dict[str, None] = {}
    for pattern in patterns:
        found = [pattern]
        if glob.has_magic(pattern) and not Path(pattern).exists():
            found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207 # absolute patterns
            if not found:
                raise FileNotFoundError(f"no file matches {pattern}")
        files.update(dict.fromkeys(found))
    return list(files)


def open_source(name: str, stop: threading.Event) -> ByteSource:
    """Opens a file or the standard input. The first bytes decide whether it is decompressed as gzip or zstd.

    Raises one of `READ_ERRORS`. `stop` ends the waiting for more standard input.
    """
    if name == STDIN:
        stdin = StandardInput(0, stop)
        return _decompressing(cast("BinaryIO", stdin), stdin.magic()) or ByteSource(stdin.poll)
    file = Path(name).open("rb")  # noqa: SIM115  # the ByteSource closes it
    return _decompressing(file, magic_of(file)) or ByteSource(file.read, file)


def magic_of(file: BinaryIO) -> bytes:
    """The first bytes of a file. Its position must be 0, and is 0 afterwards."""
    magic = file.read(len(_ZSTD))
    file.seek(0)
    return magic


def is_compressed(magic: bytes) -> bool:
    """Whether a file with these first bytes is gzip or zstd."""
    return magic.startswith((_GZIP, _ZSTD))


def _decompressing(file: BinaryIO, magic: bytes) -> ByteSource | None:
    """A source of decompressed bytes; None if the file is not compressed."""
    if magic.startswith(_GZIP):
        unzipped = gzip.GzipFile(fileobj=file)
        return ByteSource(unzipped.read1, file, unzipped)  # `read` would lose the bytes before a damaged part
    if magic.startswith(_ZSTD):
        return ByteSource(ZstdFrames(file).read, file)
    return None


class ZstdFrames:
    """A file of zstd frames. Unlike zstandard's own reader, it detects that the last frame is truncated."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    def read(self, _size: int) -> bytes:
        """The next bytes, empty at the end. Raises `EOFError` if the last frame is truncated."""
        while compressed := self._file.read(_PIECE):
            if data := self._decompress(compressed):
                return data
        if not self._frame.eof:
            raise EOFError("its last zstd frame is truncated")
        return b""

    def _decompress(self, compressed: bytes) -> bytes:
        data = b""
        while compressed:
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            data += self._frame.decompress(compressed)
            compressed = self._frame.unused_data
        return data


class StandardInput(io.RawIOBase):
    """A file descriptor that is read with a short timeout, so that no thread blocks in it. It is never closed."""

    def __init__(self, descriptor: int, stop: threading.Event) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._held = b""

    def magic(self) -> bytes:
        """The first bytes. Waits until they have arrived or the input ends."""
        while len(self._held) < len(_ZSTD) and (data := self._wait(2**16)):
            self._held += data
        return self._held[: len(_ZSTD)]

    def poll(self, size: int) -> bytes | None:
        """At most `size` bytes, empty at the end; None if none arrive within 0.1 s."""
        if self._held:
            data, self._held = self._held[:size], self._held[size:]
            return data
        return self._poll(size)

    def _poll(self, size: int) -> bytes | None:
        ready, _, _ = select.select([self._descriptor], [], [], _POLL)
        return os.read(self._descriptor, size) if ready else None

    def _wait(self, size: int) -> bytes:
        """At most `size` bytes, empty at the end or after `stop`."""
        while (data := self._poll(size)) is None:
            if self._stop.is_set():
                return b""
        return data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = (self.poll(len(buffer)) if self._held else None) or self._wait(len(buffer))
        buffer[: len(data)] = data
        return len(data)
