"""Builds ELF files with the stored symbols of a library, which the receiver reads like the library itself."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from otel_zernel_receivers.ebpf.binaries.prologue import Machine
from tests.receivers.ebpf.symbols.kept import CODE, Kept

MACHINES = {"x86_64": Machine.X86_64, "aarch64": Machine.AARCH64}
_PT_LOAD, _PT_DYNAMIC, _READ_EXECUTE = 1, 2, 5
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 0, 4, 5, 6, 10
_SHT_SYMTAB, _SHT_STRTAB = 2, 3
_GLOBAL_FUNCTION = 0x12
_HEADER, _SEGMENTS = 64, 2 * 56


def rebuilt(symbols: Iterable[Kept], arch: str = "x86_64", more: Mapping[int, bytes] | None = None) -> bytes:
    """A library for the processor `arch`. It has a full symbol table only if some symbols come from one.

    `more` has further tables by their tags in the dynamic section.
    """
    symbols = list(symbols)
    codes = {symbol.address: bytes.fromhex(symbol.code).ljust(CODE, b"\0") for symbol in symbols}
    code_at = dict(zip(codes, accumulate(map(len, codes.values()), initial=_HEADER + _SEGMENTS), strict=False))
    named = [(symbol, (symbol.name, code_at[symbol.address], len(codes[symbol.address]))) for symbol in symbols]
    exported = [entry for one, entry in named if one.table == "exported"]
    full = [entry for one, entry in named if one.table == "full"]
    return _assembled(b"".join(codes.values()), exported, full, MACHINES[arch], more or {})


Named = Sequence[tuple[str, int, int]]
"""Names, addresses and sizes of functions."""


def _assembled(code: bytes, exported: Named, full: Named, machine: Machine, more: Mapping[int, bytes]) -> bytes:
    """Lays out tables one after the other. Every address equals the file offset."""
    tables = [code, *_table(exported), _hash(len(exported)), *(_table(full) if full else (b"", b"")), *more.values()]
    places = list(accumulate(map(len, tables), initial=_HEADER + _SEGMENTS))
    _, dynsym, dynstr, hashes, symtab, strtab, *others, dynamic = places
    tags = {_DT_HASH: hashes, _DT_STRTAB: dynstr, _DT_SYMTAB: dynsym, _DT_STRSZ: len(tables[2])}
    tags |= dict(zip(more, others, strict=True))
    tables.append(b"".join(struct.pack("<QQ", *tag) for tag in (tags | {_DT_NULL: 0}).items()))
    sections = dynamic + len(tables[-1])
    tables.append(_section(_SHT_SYMTAB, symtab, len(tables[4]), 1) + _section(_SHT_STRTAB, strtab, len(tables[5]), 0))
    load = struct.pack("<IIQQQQQQ", _PT_LOAD, _READ_EXECUTE, 0, 0, 0, sections, sections, 4096)
    points = struct.pack("<IIQQQQQQ", _PT_DYNAMIC, 4, dynamic, dynamic, dynamic, *[sections - dynamic] * 2, 8)
    count = 2 if full else 0
    header = (b"\x7fELF", 2, 1, 1, 3, machine, 1, 0, _HEADER, sections, 0, _HEADER, 56, 2, 64, count, 0)
    return struct.pack("<4sBBB9xHHIQQQIHHHHHH", *header) + load + points + b"".join(tables)


def _table(named: Named) -> tuple[bytes, bytes]:
    """A symbol table with its names. The first symbol is empty, as ELF requires."""
    positions = accumulate((len(name) + 1 for name, *_ in named), initial=1)
    entries = (
        struct.pack("<IBBHQQ", position, _GLOBAL_FUNCTION, 0, 1, address, size)
        for position, (_, address, size) in zip(positions, named, strict=False)
    )
    return bytes(24) + b"".join(entries), b"\0" + b"".join(name.encode() + b"\0" for name, *_ in named)


def _hash(count: int) -> bytes:
    """A hash table with one bucket, whose chain has all symbols."""
    return struct.pack(f"<{3 + count + 1}I", 1, count + 1, min(count, 1), 0, *range(2, count + 1), *[0] * min(count, 1))


def _section(kind: int, offset: int, size: int, link: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 8, 24)
