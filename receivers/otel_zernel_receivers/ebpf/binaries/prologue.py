"""Finds the cheapest place for a uprobe at the beginning of a function, from the function's first bytes.

`place(machine, code, kernel)` returns a `Placement`: the number of bytes to skip, and the expected `TrapCost`.

The kernel emulates a few instructions inside the trap. It executes every other instruction out of line and needs a
second trap for the single step. A hit then costs ten times as much (10 us instead of 1.2 us, measured on x86-64). On
arm64, no kernel up to 7.2 emulates the instructions with which compilers begin ordinary functions, so single steps are
the rule.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from otel_zernel_receivers.ebpf.kernel.versions import SIMULATED_NOP, Version

LOOKAHEAD = 8
"""Bytes of code that `place` reads: the bytes that it may skip, and the beginning of the next instruction."""


class Machine(IntEnum):
    """The supported processors, by their ELF number (`e_machine`)."""

    X86_64 = 62
    AARCH64 = 183


class TrapCost(StrEnum):
    """How the kernel executes the instruction that a probe replaced."""

    EMULATED = "emulated"
    STEPPED = "single_stepped"
    REFUSED = "refused"
    """The kernel refuses a probe there. It also refuses a whole link that contains such a place."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A probe `skip` bytes into its function."""

    skip: int
    cost: TrapCost


def place(machine: Machine, code: bytes, kernel: Version) -> Placement:
    """The cheapest place for a probe in a function that begins with `code` (`LOOKAHEAD` bytes; fewer at a file's end).

    A landing pad (`endbr64`, `bti`) or a comparison is skipped if that makes the probe cheap. It changes neither the
    argument registers nor the stack, so arguments and the return probe stay valid.

    `paciasp` is never skipped. It signs the return address in x30, and a return probe replaces x30. A probe after it
    would replace the signed address by an unsigned one, so `autiasp` would end the program. A probe at it replaces x30
    first, and `paciasp` then signs the replacement.
    """
    if machine is Machine.X86_64:
        return _x86_placement(code)
    return _arm_placement(code, kernel)


def is_avoidable(machine: Machine, cost: TrapCost) -> bool:
    """Whether single-stepping is an exception on this processor. On arm64 all functions are single-stepped."""
    return cost is TrapCost.STEPPED and machine is Machine.X86_64


# x86-64: arch/x86/kernel/uprobes.c emulates in branch_setup_xol_ops() and push_setup_xol_ops().
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_COMPARE_MEMBER = (b"\x80\x7f", b"\x83\x7f")
"""cmpb and cmpl of a member of `this` with a constant: at::RecordFunction::end() begins so. 4 bytes, as endbr64."""
_PUSH = range(0x50, 0x58)
_REX_B = 0x41
_BRANCHES = frozenset({0x90, 0xE8, 0xE9, 0xEB, *range(0x70, 0x80)})  # nop, call, jmp near and short, jcc short
_NEAR_JCC = range(0x80, 0x90)


def _x86_placement(code: bytes) -> Placement:
    if code.startswith((_ENDBR64, *_COMPARE_MEMBER)) and _x86_emulated(code[4:]):
        return Placement(4, TrapCost.EMULATED)
    return Placement(0, TrapCost.EMULATED if _x86_emulated(code) else TrapCost.STEPPED)


def _x86_emulated(code: bytes) -> bool:
    first, second = (*code[:2], 0, 0)[:2]
    return (
        first in _PUSH
        or first in _BRANCHES
        or (first == _REX_B and second in _PUSH)
        or (first == 0x0F and second in _NEAR_JCC)
    )


# arm64: arm_probe_decode_insn() in arch/arm64/kernel/probes/decode-insn.c simulates these, as (mask, bits).
_SIMULATED = (
    (0xFF000010, 0x54000000),  # b.cond
    (0x7C000000, 0x14000000),  # b, bl
    (0x7E000000, 0x34000000),  # cbz, cbnz
    (0x7E000000, 0x36000000),  # tbz, tbnz
    (0x1F000000, 0x10000000),  # adr, adrp
    (0xFF9FFC1F, 0xD61F0000),  # br, blr, ret
)
_LITERAL = (
    (0xBF000000, 0x18000000),  # ldr
    (0xFF000000, 0x98000000),  # ldrsw
)
"""Loads relative to the instruction.

The kernel refuses probes on them since "arm64: probes: Remove broken LDR (literal) uprobe support" (CVE-2024-50099).
Before that, such a probe could make the kernel fault.
"""
_NOP = (0xFFFFFFFF, 0xD503201F)
_BTI = (0xFFFFFF3F, 0xD503241F)


def _arm_placement(code: bytes, kernel: Version) -> Placement:
    if _matches(code, _BTI) and _arm_cost(code[4:], kernel) is TrapCost.EMULATED:
        return Placement(4, TrapCost.EMULATED)
    return Placement(0, _arm_cost(code, kernel))


def _arm_cost(code: bytes, kernel: Version) -> TrapCost:
    if any(_matches(code, pattern) for pattern in _LITERAL):
        return TrapCost.REFUSED
    if any(_matches(code, pattern) for pattern in _SIMULATED) or (_matches(code, _NOP) and kernel >= SIMULATED_NOP):
        return TrapCost.EMULATED
    return TrapCost.STEPPED


def _matches(code: bytes, pattern: tuple[int, int]) -> bool:
    mask, bits = pattern
    return len(code) >= 4 and int.from_bytes(code[:4], "little") & mask == bits
