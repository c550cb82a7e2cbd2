"""Where an address of an ELF file is in the file. Only little-endian files of 64 bits, as on x86-64 and arm64."""

import struct
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD = 1


def file_offset(path: str, address: int) -> int:
    """The offset of a virtual address in the file. Raises `ValueError` if no loaded segment contains it."""
    with Path(path).open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        table, size, count = header[5], header[9], header[10]
        file.seek(table)
        segments = [_SEGMENT.unpack_from(file.read(size)) for _ in range(count)]
    for kind, _, offset, start, _, in_file, _, _ in segments:
        if kind == _LOAD and start <= address < start + in_file:
            return int(address - start + offset)
    raise ValueError(f"{path} contains nothing at the address {address:#x}")
