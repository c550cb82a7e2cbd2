"""The instructions, symbols and functions of a BPF object."""

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature that a kernel must have."""

    kind: str
    name: str


class Instruction(NamedTuple):
    """One instruction; a load of 64 bits takes two."""

    code: int
    registers: int
    offset: int
    immediate: int

    @property
    def destination(self) -> int:
        return self.registers & 15

    @property
    def source(self) -> int:
        return self.registers >> 4

    @property
    def kind(self) -> int:
        return self.code & 7


class Symbol(NamedTuple):
    """An entry of the symbol table."""

    name: str
    type: int
    section: int
    value: int
    size: int


class Function(NamedTuple):
    """A program, or a function that programs call.

    `symbols` has the symbol to which an instruction refers, by its index.
    """

    name: str
    section: str
    code: list[Instruction]
    symbols: dict[int, Symbol]
