"""The bytes of a segment file: a header of 128 bytes, then records, each with a header of 44 bytes.

All integers are little-endian. A checksum is the CRC-32 of zlib.
"""

import os
import struct
from dataclasses import dataclass
from typing import Final, Self

from otel_zernel.batch import SIGNALS, Signal

try:
    from isal.isal_zlib import crc32 as crc32  # 2 us for 100 kB; zlib takes 33 us
except ImportError:
    from zlib import crc32 as crc32

VERSION: Final = 1
"""The version of the format that this code writes. A later version must still read this one."""
MAGIC: Final = b"ZERNELQ\n"

_SEGMENT = struct.Struct("<8sHxx8sQ")
"""Magic, version, marker, first sequence. A checksum follows."""
_COPY_SIZE: Final = 64
"""The header is there twice, so that one changed byte does not hide the version and the marker."""
SEGMENT_HEADER_SIZE: Final = 2 * _COPY_SIZE

_RECORD = struct.Struct("<8sIIBxxxIQQ")
"""Marker, length and items of the data, signal, checksum of the data, sequence, time. A checksum follows."""
_CHECKSUM = struct.Struct("<I")
RECORD_HEADER_SIZE: Final = _RECORD.size + _CHECKSUM.size
MARKER_SIZE: Final = 8
LARGEST_DATA: Final = 2**31 - 1
"""Bytes in a record. Linux writes no more in one call."""


class UnknownVersion(Exception):
    """A file that a newer release has written."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The begin of a segment."""

    first: int
    """The sequence of the first record."""
    marker: bytes
    """Random bytes with which each record of this segment begins. After damage, the search for them finds the next
    record, and nobody who sends data can forge one."""

    @classmethod
    def new(cls, first: int) -> Self:
        return cls(first, os.urandom(MARKER_SIZE))

    def encode(self) -> bytes:
        fields = _SEGMENT.pack(MAGIC, VERSION, self.marker, self.first)
        return (fields + _CHECKSUM.pack(crc32(fields))).ljust(_COPY_SIZE, b"\0") * 2

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """The header in the first bytes of a file; None if both copies are damaged. Raises `UnknownVersion`."""
        for start in (0, _COPY_SIZE):
            fields = data[start : start + _SEGMENT.size]
            checksum = data[start + _SEGMENT.size : start + _SEGMENT.size + _CHECKSUM.size]
            if checksum and checksum == _CHECKSUM.pack(crc32(fields)):
                magic, version, marker, first = _SEGMENT.unpack(fields)
                if magic != MAGIC:
                    continue
                if version > VERSION:
                    raise UnknownVersion(f"has version {version} of the format; this release reads {VERSION}")
                return cls(first, marker)
        return None


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The begin of a record."""

    sequence: int
    signal: Signal
    items: int
    length: int
    time_ns: int
    checksum: int
    """Of the data."""

    def encode(self, marker: bytes) -> bytes:
        fields = _RECORD.pack(
            marker,
            self.length,
            self.items,
            SIGNALS.index(self.signal),
            self.checksum,
            self.sequence,
            self.time_ns,
        )
        return fields + _CHECKSUM.pack(crc32(fields))

    @classmethod
    def decode(cls, data: bytes, marker: bytes) -> Self | None:
        """The header in 44 bytes; None if they are damaged or are no header of this segment."""
        fields = data[: _RECORD.size]
        if len(data) != RECORD_HEADER_SIZE or data[_RECORD.size :] != _CHECKSUM.pack(crc32(fields)):
            return None
        mark, length, items, signal, checksum, sequence, time_ns = _RECORD.unpack(fields)
        if mark != marker or signal >= len(SIGNALS):
            return None
        return cls(sequence, SIGNALS[signal], items, length, time_ns, checksum)
