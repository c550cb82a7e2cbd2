"""The collectives of gloo that a process has begun and not finished, from the stacks of its threads.

    code = torch_code(proc_root, pid, mappings)
    words = words_of(own_pid, stack, SIZE)
    is_on_stack(words, code.waits)                          # the thread waits for other ranks
    works_on(own_pid, code.works, words, folder.maps)       # in these collectives

The return addresses on a stack show in which functions the thread is. Frames are not unwound.

Probes know only the collectives that began after them. A thread of gloo that moves the data of a collective has the
address of its `c10d::ProcessGroupGloo::AsyncWork` on its stack, and so has a thread that waits for it. An object is
known by its class: before the table of its virtual functions is the address of its type, and a type has the address of
the one that it derives from (Itanium C++ ABI, sections 2.5.2 and 2.9.5).
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile, Symbol
from otel_zernel_receivers.ebpf.binaries.spellings import beginnings
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping as MappedFile
from otel_zernel_receivers.ebpf.processes.files.mappings import locate, open_located
from otel_zernel_receivers.ebpf.processes.process_memory import WORD, memories_of, number_at, part_of

Words = NDArray[np.uint64]

SIZE: Final = 8_192
"""Bytes of a stack that are searched: the functions of gloo that wait have about 2 KB."""
_WAITS: Final = (
    "c10d::Work::wait",
    "c10d::ProcessGroupGloo::SendWork::wait",
    "c10d::ProcessGroupGloo::RecvWork::wait",
    "c10d::Reducer::finalize_backward",
)
_MOVES: Final = ("c10d::ProcessGroupGloo::AsyncWork::execute",)
_LIBRARY: Final = "libtorch_cpu.so"
_WORK: Final = "_ZTIN4c10d16ProcessGroupGloo9AsyncWorkE"
_CONTEXT: Final = "_ZTIN4gloo10rendezvous7ContextE"
"""The types of a collective, and of a group of ranks."""
_SEQUENCE: Final = "c10d::ProcessGroupGloo::AsyncWork::getSequencenumber"
_OPERATION: Final = "c10d::Work::retrieveOpType"
_IS_COMPLETED: Final = -20
"""From the operation: `bool completed_; std::exception_ptr exception_; const int rank_; OpType opType_;`"""
_FIELDS: Final = 512
"""The number and the operation of a collective are in its first bytes."""
_OBJECT: Final = 2_048
"""Bytes in which it has the address of its group."""
_WRITABLE: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw", re.MULTILINE)
_TYPE: Final = -8
"""From the first virtual function in the table to the address of the type."""
_DERIVES_FROM: Final = 16
"""In a type with one base."""
_MOST_BASES: Final = 4
_NEAR: Final = 1 << 26
"""Bytes between types and tables of one library: they are in one of its sections."""
_RANK: Final = struct.Struct("<8xii")
"""`const int rank; const int size;` of a group, after the address of its table. A collective has the address of either:
in some releases, the class that has the rank has no virtual functions."""
_MOST_RANKS: Final = 1 << 20


class Work(NamedTuple):
    """A collective."""

    operation: int
    """c10d::OpType"""
    sequence: int
    """Its number in its group."""
    ranks: int
    """Of its group; 0 if they are not known."""


class WorkLayout(NamedTuple):
    """The addresses of the types, and the offsets of fields of a collective."""

    work: int
    context: int
    sequence: int
    operation: int

    @classmethod
    def of(cls, elf: ElfFile, bias: int) -> Self | None:
        """Of a library in a process; None if it has no gloo. Raises OSError or UnreadableElf."""
        work, context = elf.variable(_WORK), elf.variable(_CONTEXT)
        sequence, operation = (_field(elf, function) for function in (_SEQUENCE, _OPERATION))
        if work is None or sequence is None or operation is None:
            return None
        if not (-_IS_COMPLETED <= operation < _FIELDS and sequence <= _FIELDS - WORD.size):
            return None
        return cls(work + bias, context + bias if context is not None else 0, sequence, operation)


def _field(elf: ElfFile, function: str) -> int | None:
    names = (f"{name.decode()}v" for name in beginnings(function))  # it has no arguments
    symbols = (symbol for symbols in elf.find(names).values() for symbol in symbols)
    return next((field for field in map(elf.returned_field, symbols) if field is not None), None)


class TorchCode(NamedTuple):
    """The code of `torch.distributed` in a process. All empty without it."""

    waits: Sequence[range] = ()
    """The addresses of the functions in which threads wait for other ranks."""
    moves: Sequence[range] = ()
    """The same of those in which threads of gloo move the data of a collective."""
    works: WorkLayout | None = None


def torch_code(proc_root: Path, pid: int, mappings: Iterable[MappedFile]) -> TorchCode:
    """Finds the code in the mapped files of a process."""
    for mapping in mappings:
        if mapping.name == _LIBRARY:
            with suppress(OSError, UnreadableElf), open_located(locate(proc_root, pid, mapping)) as fd:
                elf = ElfFile(fd)
                bias = elf.bias(mapping.ranges[0].start, mapping.ranges[0].offset)
                symbols = elf.find_beginning(name for function in (*_WAITS, *_MOVES) for name in beginnings(function))
                waits, moves = (_ranges(symbols, bias, functions) for functions in (_WAITS, _MOVES))
                return TorchCode(waits, moves, WorkLayout.of(elf, bias))
    return TorchCode()


def _ranges(symbols: Mapping[str, Sequence[Symbol]], bias: int, functions: Iterable[str]) -> list[range]:
    names = tuple(name.decode() for function in functions for name in beginnings(function))
    named = (symbol for name, several in symbols.items() if name.startswith(names) for symbol in several)
    return [range(bias + symbol.address, bias + symbol.address + symbol.size) for symbol in named]


def words_of(own_pid: int, stack: int, size: int) -> Words:
    """The words on a stack, by its stack pointer. Raises OSError if the process has ended."""
    content = part_of(own_pid, stack & ~7, size)
    return np.frombuffer(content[: len(content) & ~7], "<u8")


def is_on_stack(words: Words, functions: Iterable[range]) -> bool:
    """Whether one of the functions is on a stack."""
    return any(bool(((words >= each.start) & (words < each.stop)).any()) for each in functions)


def works_on(own_pid: int, layout: WorkLayout, words: Words, maps: bytes) -> list[Work]:
    """The unfinished collectives whose addresses are among the words, the oldest first.

    Raises OSError if the process has ended. `maps`: the text of /proc/PID/maps. Objects are in writable memory.
    """
    objects = _Objects(own_pid, layout, maps)
    works = {work for address in objects.of_type(words, layout.work) if (work := objects.work(address))}
    return sorted(works, key=lambda work: work.sequence)


class _Objects:
    """The objects in the memory of a process."""

    def __init__(self, own_pid: int, layout: WorkLayout, maps: bytes) -> None:
        self._pid, self._layout = own_pid, layout
        ranges = np.array([(int(start, 16), int(end, 16)) for start, end in _WRITABLE.findall(maps)], "<u8")
        self._starts, self._ends = ranges.reshape(-1, 2).T

    def of_type(self, words: Words, wanted: int) -> Iterator[int]:
        """Those of the words that are addresses of objects of a type, each once, in their order."""
        addresses = self._writable(words)
        for address, head in zip(addresses, memories_of(self._pid, addresses, WORD.size), strict=True):
            if head and self._is_table_of(WORD.unpack(head)[0], wanted):
                yield address

    def work(self, address: int) -> Work | None:
        """The collective at an address; None if it is finished."""
        content = part_of(self._pid, address, _OBJECT)
        if len(content) < _FIELDS or content[self._layout.operation + _IS_COMPLETED]:
            return None
        (sequence,) = WORD.unpack_from(content, self._layout.sequence)
        words = np.frombuffer(content[: len(content) & ~7], "<u8")
        return Work(content[self._layout.operation], sequence, self._ranks(words))

    def _ranks(self, words: Words) -> int:
        """The ranks of the group that a collective has the address of."""
        begins: Words = np.stack((words, words - np.uint64(8)), axis=1).ravel()
        for address in self.of_type(begins, self._layout.context) if self._layout.context else ():
            content = part_of(self._pid, address, _RANK.size)
            rank, size = _RANK.unpack(content) if len(content) == _RANK.size else (0, 0)
            if 0 <= rank < size <= _MOST_RANKS:
                return int(size)
        return 0

    def _writable(self, words: Words) -> list[int]:
        _, first = np.unique(words, return_index=True)
        unique: Any = words[np.sort(first)]
        unique = unique[unique & np.uint64(7) == 0]
        at = np.searchsorted(self._starts, unique, side="right").astype(np.int64) - 1
        inside = (at >= 0) & (unique < self._ends[np.maximum(at, 0)]) if len(self._ends) else np.zeros(len(at), bool)
        addresses: list[int] = unique[inside].tolist()
        return addresses

    def _is_table_of(self, table: int, wanted: int) -> bool:
        """Whether it is the table of virtual functions of a type, or of one that derives from it."""
        kind = number_at(self._pid, table + _TYPE) if abs(table - wanted) < _NEAR else 0
        for _ in range(_MOST_BASES):
            if kind == wanted or abs(kind - wanted) > _NEAR:
                return kind == wanted
            kind = number_at(self._pid, kind + _DERIVES_FROM)
        return False
