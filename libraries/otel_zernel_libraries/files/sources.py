"""Opens files, compressed or not, pipes and the standard input."""

import codecs
import gzip
import io
import os
import select
import stat
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from otel_zernel.component import Logger
from otel_zernel.errors import ZernelError
from otel_zernel_libraries.zstd import ZstdDecompressor, ZstdError

_MAX_SUBJECTS = 10_000


class Problems:
    """The current problem of each subject, such as a file."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._current: dict[str, str] = {}

    def warn(self, subject: str, problem: str) -> None:
        """Logs the problem, unless it is the subject's current one."""
        if self._current.get(subject) != problem:
            if len(self._current) >= _MAX_SUBJECTS:
                self._current.clear()
            self._current[subject] = problem
            self._logger.warning("%s", problem)

    def clear(self, subject: str) -> None:
        """Logs the end of the subject's problem, if it had one."""
        if problem := self._current.pop(subject, None):
            self._logger.info("Solved: %s", problem)


STDIN: Final = "-"
"""The name of the standard input."""
ReadBytes = Callable[[int], bytes | None]
"""Reads about as many bytes as requested, or fewer. Empty at the end; None if more bytes may come later."""

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""PowerShell redirects output as UTF-16."""
_PIECE = 4096
"""Compressed bytes of zstd per step. Decompressed, they are usually 100 kB and at most 128 MiB."""
_POLL = 0.1
"""Seconds that a read of a pipe waits for data."""

READ_ERRORS = (OSError, EOFError, zlib.error, ZstdError)
"""The errors that opening and reading may raise."""


class Unreadable(ZernelError):
    """A file cannot be read, or has not the expected form. The message is a sentence for the user."""


@contextmanager
def reading_errors(name: str) -> Iterator[None]:
    """Converts the errors of opening and reading a file to `Unreadable`, with the name of the file."""
    try:
        yield
    except READ_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unreadable(f"cannot read {name}: {reason}") from error


class ByteSource:
    """An open file or the standard input. `read` returns decompressed bytes. Closing it twice is safe."""

    def __init__(self, read: ReadBytes, *closing: Any) -> None:
        self.read = read
        self._stack = ExitStack()
        for source in closing:
            self._stack.callback(source.close)

    def close(self) -> None:
        self._stack.close()


def is_stream(name: str) -> bool:
    """Whether this is the standard input, a pipe or a device, which can be read only once. Raises `OSError`."""
    return name == STDIN or not stat.S_ISREG(Path(name).stat().st_mode)


def open_source(name: str, stop: threading.Event) -> ByteSource:
    """Opens a file, a pipe or the standard input. The first bytes decide whether it is decompressed as gzip or zstd.

    UTF-16 becomes UTF-8. Raises one of `READ_ERRORS`. A pipe may have no writer yet. `stop` ends the waiting for more
    of a pipe.
    """
    if is_stream(name):
        pipe = Pipe(0 if name == STDIN else os.open(name, os.O_RDONLY | os.O_NONBLOCK), stop)
        return _decompressing(cast("BinaryIO", pipe), pipe.magic()) or ByteSource(pipe.poll, pipe)
    file = Path(name).open("rb")  # noqa: SIM115  # the ByteSource closes it
    return _decompressing(file, magic_of(file)) or ByteSource(file.read, file)


def magic_of(file: BinaryIO) -> bytes:
    """The first bytes of a file. Its position must be 0, and is 0 afterwards."""
    magic = file.read(len(_ZSTD))
    file.seek(0)
    return magic


def encoding_of(magic: bytes) -> str:
    """The encoding of a file with these first bytes: gzip, zstd or UTF-16. Empty for all others."""
    if magic.startswith(_GZIP):
        return "gzip"
    if magic.startswith(_ZSTD):
        return "zstd"
    return "UTF-16" if magic.startswith(_UTF_16) else ""


def _decompressing(file: BinaryIO, magic: bytes) -> ByteSource | None:
    """A source of decompressed or converted bytes; None if the file is neither compressed nor UTF-16."""
    if magic.startswith(_GZIP):
        unzipped = gzip.GzipFile(fileobj=file)
        return ByteSource(unzipped.read1, file, unzipped)  # `read` would lose the bytes before a damaged part
    if magic.startswith(_ZSTD):
        return ByteSource(ZstdFrames(file).read, file)
    if magic.startswith(_UTF_16):
        return ByteSource(_Utf16(file).read, file)
    return None


class _Utf16:
    """A file of UTF-16, read as UTF-8. Broken characters become U+FFFD."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")

    def read(self, size: int) -> bytes:
        """The next bytes, empty at the end."""
        while encoded := self._file.read(size):
            if text := self._decoder.decode(encoded):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()


class ZstdFrames:
    """A file of zstd frames."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame = ZstdDecompressor()

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
                self._frame = ZstdDecompressor()
            data += self._frame.decompress(compressed)
            compressed = self._frame.unused_data
        return data


class Pipe(io.RawIOBase):
    """A file descriptor that is read with a short timeout, so that no thread blocks in it.

    The standard input is never closed. If a pipe has no writer yet, its first one is waited for.
    """

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

    def close(self) -> None:
        if self._descriptor and not self.closed:
            os.close(self._descriptor)
        super().close()

    def _poll(self, size: int) -> bytes | None:
        poller = select.poll()  # `select` fails for descriptors from 1,024 on
        poller.register(self._descriptor, select.POLLIN)
        if not poller.poll(_POLL * 1000):
            return None
        try:
            return os.read(self._descriptor, size)
        except BlockingIOError:
            return None

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
