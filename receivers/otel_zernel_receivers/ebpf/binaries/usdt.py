"""Finds the USDT probes of a library: the places in its code at which it passes facts to tracers.

The notes in `.note.stapsdt` describe them, as SystemTap's sys/sdt.h writes them.
"""

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.prologue import Machine
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.binaries.symtab import find_section, read

_NOTE: Final = struct.Struct("<III")
_ADDRESSES: Final = struct.Struct("<QQQ")
_STAPSDT: Final = b"stapsdt\0"
_KIND: Final = 3
_LARGEST: Final = 1 << 20
"""Bytes of notes; libpython has 1 kB of them."""
_MOST: Final = 64
_LONGEST: Final = 512
"""Places of a provider's probes, and bytes of their arguments. More are ignored: any job decides what is read."""
_X86: Final = {
    name: number
    for number, name in enumerate(
        [
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8"),
            *("rax", "rcx", "rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "flags", "rsp"),
        ]
    )
}
"""The numbers of registers in `struct registers` of bpf/registers.bpf.h."""
_X86_32: Final = {
    **{f"e{name[1:]}": number for name, number in _X86.items() if name[1:].isalpha()},
    **{f"{name}d": number for name, number in _X86.items() if name[1:].isdigit()},
}
_ARM: Final = {**{f"{kind}{number}": number for kind in "xw" for number in range(31)}, "sp": 31}
_REGISTERS: Final = {Machine.X86_64: {**_X86, **_X86_32}, Machine.AARCH64: _ARM}
_ARGUMENT: Final = re.compile(
    r"-?[48]@(?:%?(?P<register>[a-z]\w*)|(?P<added>-?\d+)?\(%(?P<base>\w+)\)|\[(?P<arm>\w+)(?:, *#?(?P<more>-?\d+))?\])"
)
IN_MEMORY: Final = 1 << 5
_MOST_ADDED: Final = 2048


class UsdtProbe(NamedTuple):
    """One place of a USDT probe."""

    name: str
    offset: int
    """In the file."""
    semaphore: int
    """The file offset of the counter that says whether a tracer is there; 0 if there is none."""
    arguments: tuple[int | None, ...]
    """The place of each argument as bpf/activities.bpf.c reads it; None for a place that it cannot read."""


def usdt_probes(fd: int, provider: str) -> list[UsdtProbe]:
    """The probes of a provider. Raises OSError or UnreadableElf."""
    notes = find_section(fd, b".note.stapsdt")
    if notes is None:
        return []
    if notes.size > _LARGEST:
        raise UnreadableElf(f"{notes.size} bytes of USDT notes")
    base = find_section(fd, b".stapsdt.base")
    elf = ElfFile(fd)
    probes = _probes(elf, read(fd, notes.offset, notes.size), base.address if base else None, provider)
    return list(islice(probes, _MOST))


def _probes(elf: ElfFile, notes: bytes, base: int | None, provider: str) -> Iterator[UsdtProbe]:
    for description in _descriptions(notes):
        address, linked_base, semaphore = _ADDRESSES.unpack_from(description)
        moved = 0 if base is None else base - linked_base
        owner, name, arguments = (*description[_ADDRESSES.size :].split(b"\0"), b"", b"")[:3]
        offset = elf.file_offset(address + moved, executable=True)
        if owner.decode(errors="replace") == provider and offset is not None:
            places = tuple(_place(elf.machine, text) for text in _split(arguments[:_LONGEST].decode(errors="replace")))
            counter = elf.file_offset(semaphore + moved) if semaphore else None
            yield UsdtProbe(name.decode(errors="replace"), offset, counter or 0, places)


def _descriptions(notes: bytes) -> Iterator[bytes]:
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        begin = at + _NOTE.size + (name_size + 3 & ~3)
        name, description = notes[at + _NOTE.size :][:name_size], notes[begin : begin + size]
        if kind == _KIND and name == _STAPSDT and len(description) == size >= _ADDRESSES.size:
            yield description
        at = begin + (size + 3 & ~3)


def _split(arguments: str) -> list[str]:
    """The arguments. Those of arm64 may have blanks in brackets."""
    return re.findall(r"\S+@(?:\[[^\]]*\]|\S+)", arguments)


def _place(machine: Machine, argument: str) -> int | None:
    parsed = _ARGUMENT.fullmatch(argument)
    if parsed is None:
        return None
    register = _REGISTERS[machine].get(parsed["register"] or parsed["base"] or parsed["arm"])
    if register is None or parsed["register"]:
        return register
    added = int(parsed["added"] or parsed["more"] or 0)
    if added % 4 or not -_MOST_ADDED <= added < _MOST_ADDED:
        return None
    return (added // 4 & 0x3FF) << 6 | IN_MEMORY | register
