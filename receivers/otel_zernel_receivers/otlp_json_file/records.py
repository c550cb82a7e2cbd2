"""Cuts files of the file exporter into records: lines, or messages that are prefixed with their length.

A record is OTLP as JSON, which names its signal, or as protobuf, which does not.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from otel_zernel.batch import Batch, Signal
from otel_zernel.batch.counts import parts_of_scopes
from otel_zernel.batch.signals import MESSAGE_TYPES, STABLE_SIGNALS
from otel_zernel.batch.thin import thin_type
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_json
from otel_zernel_libraries.files.sources import ReadBytes
from otel_zernel_libraries.zstd import ZstdError, decompressor

# Keys of JSON objects are always field names in OTLP, and quotes inside strings are escaped.
_SIGNAL_KEY = re.compile(rb'"resource(Metrics|Spans|Logs)"\s*:')
_SIGNALS: Final[Mapping[bytes, Signal]] = {b"Metrics": "metrics", b"Spans": "traces", b"Logs": "logs"}
_KEYWORDS: Final[Mapping[Signal, str]] = {"metrics": "metrics", "traces": "spans", "logs": "logs"}


def decode_protobuf(data: bytes, signal: Signal | None) -> Batch:
    """The batch in an encoded message. `signal` is None if it is unknown. Raises `DecodeError`."""
    return Batch.from_bytes(**{_KEYWORDS[signal or signal_of(data)]: data})


def signals_in(text: bytes) -> set[Signal]:
    """The signals that a JSON document names by keys. It may be damaged otherwise."""
    return {_SIGNALS[key] for key in _SIGNAL_KEY.findall(text)}


def decode_json(text: bytes) -> Batch:
    """The batch in a JSON document. Raises `DecodeError`."""
    signals = signals_in(text)
    if not signals:
        raise DecodeError("not OTLP: it has neither resourceMetrics nor resourceSpans nor resourceLogs")
    messages: dict[str, Any] = {_KEYWORDS[signal]: parse_json(MESSAGE_TYPES[signal], text) for signal in signals}
    return Batch(**messages)


def signal_of(encoded: bytes) -> Signal:
    """The signal of an encoded message, by the types of its fields. Raises `DecodeError` if none fits.

    The messages of all signals begin alike. A metric, a span and a log record differ in the wire types of most fields.
    A message with a text that is not UTF-8, or too deep a value, only has the thin type of its signal.
    """
    for type_of in (MESSAGE_TYPES.__getitem__, thin_type):
        for signal in STABLE_SIGNALS:
            try:
                message = type_of(signal).FromString(encoded)
            except ProtobufDecodeError:
                continue
            item = next((item for items in parts_of_scopes(message) for item in items), None)
            if item is not None and len(UnknownFieldSet(item)) == 0 and _is_plausible(signal, item):
                return signal
    raise DecodeError("not OTLP, or of an unknown signal")


def _is_plausible(signal: Signal, item: Any) -> bool:
    if signal == "metrics":
        return bool(item.name) or item.WhichOneof("data") is None
    if signal == "traces":
        has_time_or_id = bool(item.start_time_unix_nano or item.end_time_unix_nano or item.trace_id)
        return has_time_or_id and len(item.trace_id) in (0, 16) and len(item.span_id) in (0, 8)
    return True


MAX_RECORD = 32 * 2**20
"""The maximum size of a record in bytes, also decompressed. The file exporter writes 1,000 items in a line."""
_CHUNK = 256 * 1024
_WINDOW_LOG = 27
_ZSTD = b"\x28\xb5\x2f\xfd"
_PREFIX = 4
_LOOK = 16
"""The bytes from which a frame is recognised: its length, and the beginning of its message."""
_FRAME = re.compile(rb"(?=([\x00-\x02].{3})(\x28\xb5\x2f\xfd|\{\"resource|\n))", re.DOTALL)
"""A length, then zstd, JSON, or the first field of a message of protobuf."""

Form = Literal["lines", "frames"]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One record of a file, or its damage."""

    data: bytes
    """JSON or protobuf. Empty if the record is damaged."""
    damage: str
    """Why the record cannot be read: few fixed texts, for a counter. Empty if it is intact."""
    start: int
    """The offset of the record in the file."""
    end: int
    """The offset after the record."""
    form: Form

    @property
    def is_json(self) -> bool:
        """Whether the data is JSON. Protobuf begins with a tag, which is no brace."""
        return self.form == "lines" or self.data.startswith(b"{")

    @property
    def resume(self) -> Mapping[str, Any]:
        return {"form": self.form}


def find_frame(buffer: bytearray, start: int) -> int:
    """The offset of the first bytes from `start` on that look like a frame.

    If there are none, the offset of the last bytes, which are too few to decide.
    """
    end = max(start, len(buffer) - _LOOK + 1)
    for frame in _FRAME.finditer(buffer, start):
        if frame.start() >= end:
            break
        size = int.from_bytes(frame[1], "big")
        if size <= MAX_RECORD and (frame[2] != b"\n" or _fits(buffer, frame.start() + _PREFIX, size)):
            return frame.start()
    return end


def _fits(buffer: bytearray, start: int, size: int) -> bool:
    """Whether the first field of a message of protobuf ends within the message, and another one follows."""
    length = shift = 0
    for position in range(start + 1, start + 6):
        length |= (buffer[position] & 0x7F) << shift
        shift += 7
        if buffer[position] < 0x80:
            break
    end, message_end = position + 1 + length, start + size
    return end == message_end or (end < message_end and end < len(buffer) and buffer[end] == ord("\n"))


class RecordReader:
    """Reads the records of one file. Holds one record and one chunk of 256 KiB in memory."""

    def __init__(self, read: ReadBytes, offset: int = 0, form: Form | None = None) -> None:
        """`form` is known if reading goes on at an `offset`."""
        self._read = read
        self._form = form
        self._buffer = bytearray()
        self._taken = 0
        """The bytes at the beginning of the buffer that belong to earlier records."""
        self._offset = offset
        self._ended = False

    def records(self) -> Iterator[FileRecord | None]:
        """The records in order; None while there are no more bytes. Blank lines are left out."""
        while self._form is None:
            if self._size:
                # A length below 32 MiB begins with 0, 1 or 2. No JSON does.
                self._form = "frames" if self._buffer[self._taken] <= 2 else "lines"
            elif not (yield from self._fill()):
                return
        yield from self._frames() if self._form == "frames" else self._lines()

    @property
    def _size(self) -> int:
        return len(self._buffer) - self._taken

    def _fill(self) -> Generator[None, None, bool]:
        """Reads more bytes. Yields None while there are none. Returns False at the end of the file."""
        if self._taken:
            del self._buffer[: self._taken]
            self._taken = 0
        while (data := self._read(_CHUNK)) is None:
            yield None
        self._buffer += data
        return bool(data)

    def _take(self, size: int) -> bytes:
        data = bytes(memoryview(self._buffer)[self._taken : self._taken + size])
        self._taken += len(data)
        self._offset += len(data)
        return data

    def _record(self, size: int, data: bytes = b"", damage: str = "") -> FileRecord:
        """A record that ends at the offset and is `size` bytes long."""
        return FileRecord(data, damage, self._offset - size, self._offset, self._form or "lines")

    def _lines(self) -> Iterator[FileRecord | None]:
        searched = 0
        while True:
            end = self._buffer.find(b"\n", self._taken + searched)
            if end >= 0:
                line = self._take(end + 1 - self._taken)
                searched = 0
                if line.strip():
                    yield self._record(len(line), line)
            elif self._size > MAX_RECORD:
                yield from self._skip_line()
                searched = 0
            else:
                searched = self._size
                if not (yield from self._fill()):
                    break
        if (line := self._take(self._size)).strip():
            yield self._record(len(line), line)

    def _skip_line(self) -> Iterator[FileRecord | None]:
        skipped = 0
        while (end := self._buffer.find(b"\n", self._taken)) < 0:
            skipped += len(self._take(self._size))
            if not (yield from self._fill()):
                break
        skipped += len(self._take(end + 1 - self._taken if end >= 0 else self._size))
        yield self._record(skipped, damage="too long")

    def _frames(self) -> Iterator[FileRecord | None]:
        while True:
            size = int.from_bytes(self._buffer[self._taken : self._taken + _PREFIX], "big") + _PREFIX
            if self._size >= _PREFIX and not _PREFIX < size <= MAX_RECORD + _PREFIX:
                yield from self._skip_damage()
            elif self._size >= _PREFIX and self._size >= size:
                yield self._frame(self._take(size))
            elif not (yield from self._fill()):
                break
        if self._size:
            yield self._record(len(self._take(self._size)), damage="truncated")

    def _frame(self, frame: bytes) -> FileRecord:
        data = frame[_PREFIX:]
        if not data.startswith(_ZSTD):
            return self._record(len(frame), data)
        try:
            data = decompressor(_WINDOW_LOG).decompress(data, MAX_RECORD + 1)
        except ZstdError:
            return self._record(len(frame), damage="damaged compression")
        return self._record(len(frame), *((b"", "too long") if len(data) > MAX_RECORD else (data, "")))

    def _skip_damage(self) -> Iterator[FileRecord | None]:
        """Skips to the next bytes that look like a record. A writer that died left a part of one before them."""
        skipped = len(self._take(1))
        while True:
            start = find_frame(self._buffer, self._taken)
            skipped += len(self._take(start - self._taken))
            if self._size >= _LOOK or not (yield from self._fill()):
                break
        if self._size < _LOOK:
            skipped += len(self._take(self._size))
        yield self._record(skipped, damage="damaged length")
