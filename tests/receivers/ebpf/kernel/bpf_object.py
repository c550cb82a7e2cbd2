"""Reads the parts of a compiled BPF object that not every kernel accepts: instructions, calls, maps, types.

    used = BpfObject(path.read_bytes()).features("probe_entry")  # {Feature("helper", "174"), ...}

Layouts: System V ABI (ELF), linux/bpf.h (instructions), linux/btf.h (types). A feature is a kind and a name as in
kernel_features.tsv.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property

from tests.receivers.ebpf.kernel.btf import Btf
from tests.receivers.ebpf.kernel.instructions import Feature, Function, Instruction, Symbol

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_INSTRUCTION = struct.Struct("<BBhi")
_RELOCATION = struct.Struct("<QQ")
_STT_FUNC, _STT_SECTION, _SHT_REL = 2, 3, 9

_LD, _LDX, _ST, _STX, _ALU, _JMP, _JMP32, _ALU64 = range(8)
_CALL, _JA, _EXIT = 0x85, 0x05, 0x95
_LOAD_64 = 0x18
_PSEUDO_CALL = 1
_ATOMIC, _MEM, _MEM_SIGNED = 0xC0, 0x60, 0x80
_SIZES = {0x00: "32", 0x18: "64"}
_ATOMICS = {0x00: "add", 0x40: "or", 0x50: "and", 0xA0: "xor", 0xE0: "xchg", 0xF0: "cmpxchg"}
_FETCH = 0x01
_OF_MAPS = {1: {2}, 2: {2, 3}, 3: {2}, 87: {2}, 88: {2}, 156: {3}}
"""The arguments of each helper that are a map's key or value: lookup, update, delete, push, pop, task_storage_get."""
_RINGBUF_RESERVE = 131
_PREV_STATE = 24  # bytes into the context of sched_switch: the fourth argument


class BpfObject:
    """An object file for BPF, little-endian."""

    def __init__(self, elf: bytes) -> None:
        self._elf = elf
        table, width, count, names = struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<HHH", elf, 58)
        self._headers = [_SECTION.unpack_from(elf, table + width * index) for index in range(count)]
        self._names = [self._text(names, header[0]) for header in self._headers]

    @cached_property
    def programs(self) -> dict[str, Function]:
        """The programs by name."""
        return {name: function for name, function in self._functions.items() if function.section != ".text"}

    @cached_property
    def btf(self) -> Btf:
        """The types, which describe maps and functions."""
        return Btf(self.section(".BTF"))

    def section(self, name: str) -> bytes:
        """The bytes of a section."""
        return self._content(self._names.index(name))

    def features(self, program: str) -> set[Feature]:
        """The features that a kernel needs to load this program with all maps of the object."""
        reached = list(self._reach(self._functions[program]))
        section, _, _ = self._functions[program].section.partition("/")
        found = {Feature("section", section)}
        found |= {Feature("verifier", "function calls")} if len(reached) > 1 else set()
        return found.union(self._of_maps, *(self._of_functions[function.name] for function in reached))

    @cached_property
    def _of_functions(self) -> dict[str, set[Feature]]:
        return {
            name: {*self._features_of(function), *self._of_types(function)}
            for name, function in self._functions.items()
        }

    def _reach(self, program: Function) -> Iterator[Function]:
        waiting, seen = [program], {program.name}
        while waiting:
            function = waiting.pop()
            yield function
            calls = [
                index for index, one in enumerate(function.code) if one.code == _CALL and one.source == _PSEUDO_CALL
            ]
            callees = {self._callee(function, index) for index in calls if not _kernel_function(function, index)}
            waiting += [self._functions[name] for name in callees - seen]
            seen |= callees

    def _callee(self, function: Function, index: int) -> str:
        """clang refers to a function by its symbol, or by the section's symbol and a distance in instructions."""
        symbol = function.symbols.get(index)
        if symbol and symbol.type == _STT_FUNC:
            return symbol.name
        place = (function.code[index].immediate + 1) * 8
        section = self._names[symbol.section] if symbol else function.section
        at = place if symbol else self._starts[function.name] + (index + 1 + function.code[index].immediate) * 8
        return next(
            name
            for name, function in self._functions.items()
            if function.section == section and self._starts[name] == at
        )

    def _features_of(self, function: Function) -> Iterator[Feature]:
        for index, one in enumerate(function.code):
            if one.code == _CALL and one.source == 0:
                yield Feature("helper", str(one.immediate))
            elif one.code == _CALL and (name := _kernel_function(function, index)):
                yield Feature("kfunc", f"{name}/{self.btf.parameters(name)}")
            elif name := _instruction_feature(one):
                yield Feature("instruction", name)
        if any(_jumps(one) and one.offset < 0 for one in function.code):
            yield Feature("verifier", "loops")
        if _loops_without_jump(function.code):
            yield Feature("verifier", "loops that end without a jump")
        given = self.btf.pointer_parameters(function.name)
        if function.section == ".text" and self.btf.is_global(function.name):
            yield Feature("verifier", "global functions")
            if given:
                yield Feature("verifier", "pointers to global functions")
            if given_to_map(function, {1 + position for position in given}):
                yield Feature("verifier", "map key or value in memory given to a global function")
        if given_to_map(function, set(), from_ring=True):
            yield Feature("verifier", "map key or value in memory of a ring buffer")
        if function.section == "tp_btf/sched_switch" and _reads_context(function, _PREV_STATE):
            yield Feature("tracepoint", "sched_switch prev_state")

    @cached_property
    def _of_maps(self) -> set[Feature]:
        found = {Feature("map data", name) for name in self._names if name in {".rodata", ".data", ".bss"}}
        for definition in self.btf.maps():
            found.add(Feature("map", str(definition["type"])))
            found |= {Feature("map flag", hex(bit)) for bit in _bits(definition.get("map_flags", 0))}
        return found

    def _of_types(self, function: Function) -> Iterator[Feature]:
        """Fields of kernel structures whose offset libbpf reads from the running kernel's BTF (CO-RE)."""
        start = self._starts[function.name]
        for section, at, type_, access in self.btf.relocations(self.section(".BTF.ext")):
            if section == function.section and start <= at < start + len(function.code) * _INSTRUCTION.size:
                yield Feature("types", "kernel BTF")
                yield Feature("field", self.btf.field(type_, access))

    @cached_property
    def _symbols(self) -> list[Symbol]:
        index = self._names.index(".symtab")
        strings = self._headers[index][6]
        return [
            Symbol(self._text(strings, name), info & 15, section, value, size)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(self._content(index))
        ]

    @cached_property
    def _starts(self) -> dict[str, int]:
        return {symbol.name: symbol.value for symbol in self._symbols if symbol.type == _STT_FUNC}

    @cached_property
    def _functions(self) -> dict[str, Function]:
        found = {}
        for symbol in self._symbols:
            if symbol.type == _STT_FUNC:
                code = self._content(symbol.section)[symbol.value : symbol.value + symbol.size]
                instructions = [Instruction(*fields) for fields in _INSTRUCTION.iter_unpack(code)]
                found[symbol.name] = Function(
                    symbol.name, self._names[symbol.section], instructions, self._relocated(symbol)
                )
        return found

    def _relocated(self, function: Symbol) -> dict[int, Symbol]:
        for index, header in enumerate(self._headers):
            if header[1] == _SHT_REL and header[7] == function.section:
                entries = _RELOCATION.iter_unpack(self._content(index))
                return {
                    (at - function.value) // 8: self._symbols[info >> 32]
                    for at, info in entries
                    if 0 <= at - function.value < function.size
                }
        return {}

    def _content(self, index: int) -> bytes:
        offset, size = self._headers[index][4:6]
        return self._elf[offset : offset + size]

    def _text(self, section: int, offset: int) -> str:
        start = self._headers[section][4] + offset
        return self._elf[start : self._elf.index(b"\0", start)].decode()


def _kernel_function(function: Function, index: int) -> str | None:
    """The name of a called kfunc, which is a symbol that the object does not define."""
    symbol = function.symbols.get(index)
    return symbol.name if symbol and not symbol.section else None


def _jumps(one: Instruction) -> bool:
    return one.kind in {_JMP, _JMP32} and one.code not in {_CALL, _EXIT}


def _loops_without_jump(code: Sequence[Instruction]) -> bool:
    """Whether the last instruction of a loop is no jump, but lies before the first one of the loop."""
    waiting, path, seen = [(0, False)], dict[int, None](), set[int]()
    while waiting:
        at, is_left = waiting.pop()
        if is_left:
            path.popitem()
            continue
        if at in seen:
            continue
        seen.add(at)
        path[at] = None
        waiting.append((at, True))
        one = code[at]
        after = at + 2 if one.code == _LOAD_64 else at + 1
        if not _jumps(one) and one.code != _EXIT and after in path:
            return True
        if one.code not in (_EXIT, _JA):
            waiting.append((after, False))
        if _jumps(one):
            waiting.append((at + 1 + one.offset, False))
    return False


def _instruction_feature(one: Instruction) -> str | None:
    """The feature of an instruction that not every kernel has. All others are as old as BPF."""
    if one.kind == _STX and one.code & 0xE0 == _ATOMIC:
        fetch = "fetch " if one.immediate & _FETCH and one.immediate < 0xE0 else ""
        return f"atomic {fetch}{_ATOMICS[one.immediate & 0xF0]} {_SIZES[one.code & 0x18]}"
    if one.kind == _LDX and one.code & 0xE0 == _MEM_SIGNED:
        return "version 4"
    if one.kind == _JMP32:
        return "version 4" if one.code & 0xF0 == 0 else "jmp32"
    if one.kind in {_ALU, _ALU64} and (one.offset or (one.kind == _ALU64 and one.code & 0xF0 == 0xD0)):
        return "version 4"
    return "alu32" if one.kind == _ALU else None


def given_to_map(function: Function, registers: set[int], *, from_ring: bool = False) -> bool:
    """Whether a map's key or value is in memory to which these registers point at first, or in a ring buffer's record.

    Follows pointers in the order of the code, not of its execution.
    """
    holders = _Pointers(registers)
    for one in function.code:
        is_helper = one.code == _CALL and one.source == 0
        if is_helper and _OF_MAPS.get(one.immediate, set()) & holders.registers:
            return True
        holders.follow(one)
        if from_ring and is_helper and one.immediate == _RINGBUF_RESERVE:
            holders.registers.add(0)
    return False


def _reads_context(function: Function, offset: int) -> bool:
    holders = _Pointers({1})
    for one in function.code:
        if one.kind == _LDX and one.source in holders.registers and one.offset == offset:
            return True
        holders.follow(one)
    return False


class _Pointers:
    """Registers and stack slots that hold a followed pointer, or that pointer plus a constant."""

    def __init__(self, registers: set[int]) -> None:
        self.registers = registers
        self._slots: set[int] = set()

    def follow(self, one: Instruction) -> None:
        """Updates the holders after an instruction."""
        if one.code == _CALL:
            self.registers -= set(range(6))
        elif one.code == 0xBF:  # a register to another
            self._set(one.destination, one.source in self.registers)
        elif one.kind == _LDX:
            self._set(one.destination, one.source == 10 and one.offset in self._slots)
        elif one.code == 0x7B and one.destination == 10:  # to the stack
            (self._slots.add if one.source in self.registers else self._slots.discard)(one.offset)
        elif one.kind in {_LD, _ALU} or (one.kind == _ALU64 and one.code != 0x07):  # 0x07 adds a constant
            self._set(one.destination, False)

    def _set(self, register: int, holds: bool) -> None:
        (self.registers.add if holds else self.registers.discard)(register)


def _bits(number: int) -> Iterator[int]:
    while number:
        yield number & -number
        number &= number - 1
