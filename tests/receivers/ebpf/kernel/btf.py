"""Reads the types of a BPF object (section .BTF) that describe maps and functions. Layouts: linux/btf.h."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FUNC, _FUNC_PROTO, _VAR, _DATASEC, _DECL_TAG, _ENUM64 = (
    *range(2, 7), *range(12, 16), 17, 19,
)  # fmt: skip
_EXTRA = {1: 4, _ARRAY: 12, _VAR: 4, _DECL_TAG: 4}
_PER_MEMBER = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _FUNC_PROTO: 8, _DATASEC: 12, _ENUM64: 12}
_GLOBAL = 1  # linkage of a function; 2 is extern
_MODIFIERS = {8, 9, 10, 11, 18}  # typedef, volatile, const, restrict, type tag


class Type(NamedTuple):
    """`struct btf_type` and the data that follows it.

    `members` is the linkage for functions; `size` is the number of another type for kinds that refer to one.
    """

    name: str
    kind: int
    members: int
    size: int
    extra: bytes


class Btf:
    """All types, numbered from 1."""

    def __init__(self, data: bytes) -> None:
        header, types, types_size, strings = struct.unpack_from("<IIII", data, 4)
        self._data, self._strings = data, header + strings
        self._types = [Type("void", 0, 0, 0, b""), *self._read(header + types, header + types + types_size)]
        self._functions = {kind.name: kind for kind in self._types if kind.kind == _FUNC}

    def structs(self) -> dict[str, tuple[int, dict[str, int]]]:
        """The structs and unions by name: the size of each, and the offsets of its fields, both in bytes."""
        return {
            kind.name: (kind.size, dict(self._offsets(kind))) for kind in self._types if kind.kind in (_STRUCT, _UNION)
        }

    def _offsets(self, structure: Type) -> Iterator[tuple[str, int]]:
        for name, _, bits in struct.iter_unpack("<III", structure.extra):
            yield self._text(name), (bits & 0xFFFFFF) // 8

    def parameters(self, function: str) -> int:
        """The number of a function's parameters."""
        return len(self._parameters(function))

    def pointer_parameters(self, function: str) -> set[int]:
        """The positions of a function's parameters that are pointers, from 0."""
        kinds = (self._resolved(number).kind for number in self._parameters(function))
        return {position for position, kind in enumerate(kinds) if kind == _PTR}

    def is_global(self, function: str) -> bool:
        """Whether the verifier checks the function separately from its callers."""
        return self._functions[function].members == _GLOBAL

    def maps(self) -> Iterator[dict[str, int]]:
        """Each map's numbers: `type`, `max_entries`, `map_flags`."""
        for section in self._types:
            if section.kind == _DATASEC and section.name == ".maps":
                for variable, _, _ in struct.iter_unpack("<III", section.extra):
                    yield dict(self._numbers(self._types[self._types[variable].size]))

    def relocations(self, extra: bytes) -> Iterator[tuple[str, int, int, str]]:
        """The relocations in .BTF.ext: section and offset of an instruction, number of a type, path such as `0:1`."""
        header, *_ = struct.unpack_from("<I", extra, 4)
        start, length = struct.unpack_from("<II", extra, 24) if header >= 32 else (0, 0)
        at, end = header + start, header + start + length
        width = struct.unpack_from("<I", extra, at)[0] if length else 0
        at += 4
        while at < end:
            name, count = struct.unpack_from("<II", extra, at)
            for index in range(count):
                place, type_, access, _ = struct.unpack_from("<IIII", extra, at + 8 + index * width)
                yield self._text(name), place, type_, self._text(access)
            at += 8 + count * width

    def field(self, number: int, path: str) -> str:
        """The name of a field of a structure, as in `task_struct.se.sum_exec_runtime`, by its path."""
        structure = self._resolved(number)
        names = [structure.name]
        for position in map(int, path.split(":")[1:]):
            name, type_, _ = struct.unpack_from("<III", structure.extra, 12 * position)
            names.append(self._text(name))
            structure = self._resolved(type_)
        return ".".join(names)

    def _numbers(self, definition: Type) -> Iterator[tuple[str, int]]:
        """libbpf's __uint(name, value): a pointer to an array of `value` elements."""
        for name, number, _ in struct.iter_unpack("<III", definition.extra):
            pointed = self._resolved(self._resolved(number).size)
            if pointed.kind == _ARRAY:
                yield self._text(name), struct.unpack("<III", pointed.extra)[2]

    def _parameters(self, function: str) -> list[int]:
        prototype = self._types[self._functions[function].size]
        return [number for _, number in struct.iter_unpack("<II", prototype.extra)]

    def _resolved(self, number: int) -> Type:
        kind = self._types[number]
        return self._resolved(kind.size) if kind.kind in _MODIFIERS else kind

    def _read(self, at: int, end: int) -> Iterator[Type]:
        while at < end:
            name, info, size = struct.unpack_from("<III", self._data, at)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            length = _EXTRA.get(kind, 0) + _PER_MEMBER.get(kind, 0) * count
            yield Type(self._text(name), kind, count, size, self._data[at + 12 : at + 12 + length])
            at += 12 + length

    def _text(self, offset: int) -> str:
        start = self._strings + offset
        return self._data[start : self._data.index(b"\0", start)].decode()
