"""Finds exported functions in ELF files: their versions, their file offsets, and the places to probe.

    elf = ElfFile(fd)
    for name, symbols in elf.find(["cudaLaunchKernel"]).items():
        points = [elf.probe_point(symbol, versions.RUNNING) for symbol in symbols]

The files belong to other users, who may change them during reading. Therefore files are not mapped into memory:
truncating a mapped file would kill the collector with SIGBUS. Data is read in small, bounded pieces, and a file that
contradicts itself raises `UnreadableElf`.

`find` uses the file's own hash table, like the dynamic linker: the cost depends on the number of names, not on the size
of the file. `find_beginning`, for C++ functions with any arguments, searches all names piece by piece. It takes 10 ms
for the 5 MB of names in PyTorch's libtorch_cpu.so.

The layouts are those of the System V ABI and its GNU extensions (`.gnu.hash`, `.gnu.version`).
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from otel_zernel_receivers.ebpf.binaries import code_shapes
from otel_zernel_receivers.ebpf.binaries.prologue import LOOKAHEAD, Machine, TrapCost, place
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf, find_names
from otel_zernel_receivers.ebpf.kernel.versions import Version

_MAX_READ = 1 << 20
_MAX_READS = 20_000
"""Reads of one file. Looking up all CUDA functions takes 1,000."""
_MAX_SEGMENTS = 128
_MAX_CHAIN = 1024  # symbols; linkers aim at a few per hash bucket
_MAX_VERSIONS = 4096
_MAX_VERSION_NAME = 256

_MAGIC = int.from_bytes(b"\x7fELF", "little")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_PF_X = 1
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 4, 5, 6, 10
_DT_GNU_HASH, _DT_VERSYM, _DT_VERDEF = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC
_STT_OBJECT, _STT_FUNC = 1, 2
_PAGE = 1 << 16  # bytes; the largest page of the supported processors
_VERSYM_HIDDEN = 0x8000

_HEADER = struct.Struct("<IBBB9xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<QQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERDEF = struct.Struct("<HHHHIII")
_GNU_HASH = struct.Struct("<IIII")
_SYSV_HASH = struct.Struct("<II")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class Symbol:
    """One exported function. A name has several symbols if the library keeps old versions of the function."""

    name: str
    version: str | None
    """As in `cudaMalloc@libcudart.so.13`; None in a library without versions."""
    default: bool
    """Whether programs that are linked today use this version (`@@`)."""
    address: int
    """Virtual address relative to the load base of the file."""
    offset: int
    """File offset of the first instruction."""
    size: int
    """Bytes of code."""


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """The place of a probe: `offset` is a file offset, which the kernel expects."""

    offset: int
    cost: TrapCost
    semaphore: int = 0
    """The file offset of the counter of tracers that a USDT probe has; 0 if there is none."""


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    alignment: int


class ElfFile:
    """The dynamic symbols of the open file `fd`, which the caller closes. Methods raise OSError or UnreadableElf."""

    def __init__(self, fd: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableElf("not a regular file")
        self._fd, self._size, self._reads = fd, status.st_size, 0
        magic, bits, order, _, _, machine, _, _, table, _, _, _, width, count, *_ = self._unpack(0, _HEADER)
        if magic != _MAGIC or (bits, order) != (2, 1):
            raise UnreadableElf("not a 64-bit little-endian ELF file")
        if machine not in set(Machine):
            raise UnreadableElf(f"for another processor (ELF machine {machine})")
        if width != _SEGMENT.size or count > _MAX_SEGMENTS:
            raise UnreadableElf(f"{count} program headers of {width} bytes")
        self.machine = Machine(machine)
        self._segments = [_Segment(*fields) for fields in _SEGMENT.iter_unpack(self._read(table, count * width))]

    def find(self, names: Iterable[str]) -> dict[str, list[Symbol]]:
        """The exported functions among `names`, each with all its versions.

        Names that the file does not export are absent.
        """
        matches = ((name, self._lookup(name)) for name in names)
        return {name: symbols for name, symbols in matches if symbols}

    def find_beginning(self, beginnings: Iterable[bytes]) -> dict[str, list[Symbol]]:
        """The exported functions whose names begin with one of `beginnings`, each with all its versions."""
        beginnings = tuple(beginnings)
        if not beginnings or _DT_STRTAB not in self._dynamic:
            return {}
        table, size = self._dynamic[_DT_STRTAB], self._dynamic.get(_DT_STRSZ, 0)
        names = find_names(self._fd, self._offset(table), size, beginnings)
        return self.find(dict.fromkeys(names.values()))

    def probe_point(self, symbol: Symbol, kernel: Version) -> ProbePoint:
        """The place to probe the entry of `symbol`, and the cost of a hit there on this kernel."""
        code = self._read(symbol.offset, min(LOOKAHEAD, self._size - symbol.offset))
        placement = place(self.machine, code, kernel)
        return ProbePoint(symbol.offset + placement.skip, placement.cost)

    def return_points(self, symbol: Symbol, kernel: Version) -> list[ProbePoint]:
        """The places to probe the returns of `symbol`, a function that returns `true` or throws.

        Parts of the function that are elsewhere (`.cold`) are not searched.
        """
        if symbol.size > code_shapes.LONGEST:
            return []
        code = self._read(symbol.offset, min(symbol.size, self._size - symbol.offset))
        returns = code_shapes.returns_of_true(self.machine, code)
        return [ProbePoint(symbol.offset + at, place(self.machine, code[at:], kernel).cost) for at in returns]

    def tail_call_point(self, symbol: Symbol, kernel: Version) -> list[ProbePoint]:
        """The place to probe the jump of `symbol`, a function that only calls another; empty if it does more."""
        code = self._read(symbol.offset, min(code_shapes.LOOKAHEAD, self._size - symbol.offset))
        at = code_shapes.tail_call(self.machine, code)
        return [] if at is None else [ProbePoint(symbol.offset + at, place(self.machine, code[at:], kernel).cost)]

    def returned_field(self, symbol: Symbol) -> int | None:
        """The offset of the field that `symbol` returns, a function that does nothing else; None if it does more."""
        code = self._read(symbol.offset, min(code_shapes.LOOKAHEAD, self._size - symbol.offset))
        return code_shapes.returned_field(self.machine, code)

    def file_offset(self, address: int, executable: bool = False) -> int | None:
        """The file offset of a virtual address; None if the file has no bytes there, or no executable ones if asked."""
        for segment in self._segments:
            if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.file_size:
                if executable and not segment.flags & _PF_X:
                    return None
                return address - segment.address + segment.offset
        return None

    def variable(self, name: str) -> int | None:
        """The virtual address of an exported variable; None if the file does not export it."""
        encoded = name.encode()
        for index in self._indices(encoded):
            string, info, _, section, address, _ = self._symbol(index)
            if info & 0xF == _STT_OBJECT and section != 0 and self._is_string(string, encoded):
                return address
        return None

    def bias(self, start: int, offset: int) -> int:
        """What a process adds to virtual addresses of this file, if it has mapped `offset` of the file at `start`."""
        for segment in self._segments:
            if segment.kind == _PT_LOAD and segment.offset - _PAGE < offset < segment.offset + segment.file_size:
                return start - (offset - segment.offset + segment.address)
        raise UnreadableElf(f"no segment has the file offset {offset}")

    def _lookup(self, name: str) -> list[Symbol]:
        encoded = name.encode()
        candidates = (self._function(index, name, encoded) for index in self._indices(encoded))
        return [symbol for symbol in candidates if symbol]

    def _indices(self, name: bytes) -> Iterator[int]:
        """The symbols that may have the name."""
        if _DT_GNU_HASH in self._dynamic:
            return self._gnu_chain(_gnu_hash(name))
        if _DT_HASH in self._dynamic:
            return self._sysv_chain(_sysv_hash(name))
        return iter(())

    def _symbol(self, index: int) -> tuple[int, ...]:
        return self._unpack_at(self._entry(_DT_SYMTAB, index, _SYMBOL.size), _SYMBOL)

    def _function(self, index: int, name: str, encoded: bytes) -> Symbol | None:
        """Symbol `index`, if it is a function with this name that the file defines."""
        string, info, _, section, address, size = self._symbol(index)
        offset = self.file_offset(address, executable=True)
        if info & 0xF != _STT_FUNC or section == 0 or offset is None or not self._is_string(string, encoded):
            return None
        version, default = self._version_of(index)
        return Symbol(name, version, default, address, offset, size)

    def _is_string(self, index: int, expected: bytes) -> bool:
        at = self._offset(self._entry(_DT_STRTAB, index, 1))
        return self._read(at, min(len(expected) + 1, self._size - at)) == expected + b"\0"

    def _gnu_chain(self, wanted: int) -> Iterator[int]:
        table = self._dynamic[_DT_GNU_HASH]
        bucket_count, first, bloom_words, _ = self._unpack_at(table, _GNU_HASH)
        buckets = table + _GNU_HASH.size + 8 * bloom_words
        chains = buckets + 4 * bucket_count
        (index,) = self._unpack_at(buckets + 4 * (wanted % max(1, bucket_count)), _U32)
        if index == 0:
            return
        for step in range(index, index + _MAX_CHAIN):
            (value,) = self._unpack_at(chains + 4 * (step - first), _U32)
            if value | 1 == wanted | 1:
                yield step
            if value & 1:
                return
        raise UnreadableElf("a hash chain has no end")

    def _sysv_chain(self, wanted: int) -> Iterator[int]:
        table = self._dynamic[_DT_HASH]
        bucket_count, _ = self._unpack_at(table, _SYSV_HASH)
        buckets = table + _SYSV_HASH.size
        chains = buckets + 4 * bucket_count
        (index,) = self._unpack_at(buckets + 4 * (wanted % max(1, bucket_count)), _U32)
        for _ in range(_MAX_CHAIN):
            if index == 0:
                return
            yield index
            (index,) = self._unpack_at(chains + 4 * index, _U32)
        raise UnreadableElf("a hash chain has no end")

    def _version_of(self, index: int) -> tuple[str | None, bool]:
        if _DT_VERSYM not in self._dynamic:
            return None, True
        (number,) = self._unpack_at(self._entry(_DT_VERSYM, index, _U16.size), _U16)
        return self._versions.get(number & ~_VERSYM_HIDDEN), not number & _VERSYM_HIDDEN

    @cached_property
    def _versions(self) -> dict[int, str]:
        """The names of versions by number. Numbers 0 and 1 mean that a symbol has no version."""
        names: dict[int, str] = {}
        at = self._dynamic.get(_DT_VERDEF)
        for _ in range(_MAX_VERSIONS):
            if at is None:
                return names
            _, _, number, _, _, auxiliary, following = self._unpack_at(at, _VERDEF)
            (string,) = self._unpack_at(at + auxiliary, _U32)
            if number > 1:
                names[number] = self._version_name(string)
            at = at + following if following else None
        raise UnreadableElf("the list of versions has no end")

    def _version_name(self, index: int) -> str:
        at = self._offset(self._entry(_DT_STRTAB, index, 1))
        raw = self._read(at, min(_MAX_VERSION_NAME, self._size - at))
        return raw.split(b"\0", 1)[0].decode(errors="replace")

    @cached_property
    def _dynamic(self) -> dict[int, int]:
        """The dynamic section: values by tag; empty in a static executable."""
        for segment in self._segments:
            if segment.kind == _PT_DYNAMIC:
                usable = segment.file_size - segment.file_size % _DYNAMIC.size
                return dict(_DYNAMIC.iter_unpack(self._read(segment.offset, usable)))
        return {}

    def _entry(self, table: int, index: int, width: int) -> int:
        """The virtual address of an element of a table."""
        if table not in self._dynamic:
            raise UnreadableElf(f"dynamic table {table} is missing")
        return self._dynamic[table] + index * width

    def _offset(self, address: int) -> int:
        offset = self.file_offset(address)
        if offset is None or offset >= self._size:
            raise UnreadableElf(f"a table at {address:#x} is outside the file")
        return offset

    def _unpack_at(self, address: int, layout: struct.Struct) -> tuple[int, ...]:
        return self._unpack(self._offset(address), layout)

    def _unpack(self, offset: int, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self._read(offset, layout.size))

    def _read(self, offset: int, size: int) -> bytes:
        if not 0 <= size <= _MAX_READ or offset + size > self._size:
            raise UnreadableElf(f"cannot read {size} bytes at {offset} of a file of {self._size} bytes")
        self._reads += 1
        if self._reads > _MAX_READS:
            raise UnreadableElf("too many reads: its tables are inconsistent")
        data = os.pread(self._fd, size, offset)
        if len(data) < size:
            raise UnreadableElf("the file was truncated during reading")
        return data


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _sysv_hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value
