"""The place and the cost of probes, for the first instructions of real functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.binaries.prologue import (
    LOOKAHEAD,
    Machine,
    Placement,
    TrapCost,
    is_avoidable,
    place,
)
from otel_zernel_receivers.ebpf.kernel.versions import Version
from otel_zernel_receivers.ebpf.probes import calibration

CHEAP, STEPPED, REFUSED = TrapCost.EMULATED, TrapCost.STEPPED, TrapCost.REFUSED
NEWEST = (7, 2)


@pytest.mark.parametrize(
    ("code", "skip", "cost"),
    [
        ("55 4889e5", 0, CHEAP),  # push rbp
        ("4157 4156", 0, CHEAP),  # push r15
        ("53", 0, CHEAP),  # push rbx, at the end of the file
        ("f30f1efa 55 4889e5", 4, CHEAP),  # endbr64; push rbp
        ("f30f1efa 4157", 4, CHEAP),  # endbr64; push r15
        ("f30f1efa e900000000", 4, CHEAP),  # endbr64; jmp
        ("f30f1efa 4883ec08", 0, STEPPED),  # endbr64; sub rsp, 8
        ("f30f1efa", 0, STEPPED),
        ("807f6800 745a", 4, CHEAP),  # cmpb $0, 0x68(rdi); je
        ("837f1001 7406", 4, CHEAP),  # cmpl $1, 0x10(rdi); je
        ("807f6800 4883ec08", 0, STEPPED),  # cmpb; sub rsp, 8
        ("4883ec08", 0, STEPPED),  # sub rsp, 8
        ("488d4708", 0, STEPPED),  # lea rax, [rdi+8]
        ("41 8b07", 0, STEPPED),  # mov eax, [r15]: the prefix of push, but no push
        ("0f84 00000000", 0, CHEAP),  # je
        ("0f1f4400 00", 0, STEPPED),  # nop of several bytes
        ("", 0, STEPPED),
    ],
)
def test_placements_on_x86_64(code: str, skip: int, cost: TrapCost) -> None:
    assert place(Machine.X86_64, bytes.fromhex(code), NEWEST) == Placement(skip, cost)


STP, PACIASP, BTI_C, NOP = 0xA9BF7BFD, 0xD503233F, 0xD503245F, 0xD503201F  # stp x29, x30, [sp, #-16]!


@pytest.mark.parametrize(
    ("words", "skip", "cost"),
    [
        # The beginnings of functions by clang with -mbranch-protection=none, =bti and =standard. One that calls others:
        ([STP], 0, STEPPED),
        ([BTI_C, STP], 0, STEPPED),
        ([PACIASP, STP], 0, STEPPED),
        # One that only adds:
        ([0x11000400, 0xD65F03C0], 0, STEPPED),  # add w0, w0, #1; ret
        ([BTI_C, 0x11000400], 0, STEPPED),
        # One that only calls another with the same arguments:
        ([0x14000004], 0, CHEAP),  # b
        ([BTI_C, 0x14000004], 4, CHEAP),
        ([BTI_C, 0x90000010], 4, CHEAP),  # bti c; adrp x16
        ([PACIASP, 0x90000010], 0, STEPPED),  # never after the signature
        ([BTI_C, PACIASP], 0, STEPPED),
        ([0x90000010], 0, CHEAP),  # adrp x16
        ([0xB4000040], 0, CHEAP),  # cbz x0
        ([0x37000040], 0, CHEAP),  # tbnz w0
        ([0x54000041], 0, CHEAP),  # b.ne
        ([0xD61F0200], 0, CHEAP),  # br x16
        ([0xD10043FF], 0, STEPPED),  # sub sp, sp, #16
        ([0x58000040], 0, REFUSED),  # ldr x0, literal
        ([0x98000040], 0, REFUSED),  # ldrsw x0, literal
        ([BTI_C, 0x58000040], 0, STEPPED),
    ],
)
def test_placements_on_arm64(words: list[int], skip: int, cost: TrapCost) -> None:
    assert place(Machine.AARCH64, instructions(words), NEWEST) == Placement(skip, cost)


@pytest.mark.parametrize(("kernel", "cost"), [((6, 12), STEPPED), ((6, 13), CHEAP), ((7, 0), CHEAP)])
def test_a_nop_is_cheap_on_arm64_since_6_13(kernel: Version, cost: TrapCost) -> None:
    assert place(Machine.AARCH64, instructions([NOP, STP]), kernel).cost is cost


def test_single_steps_are_avoidable_on_x86_64_only() -> None:
    assert is_avoidable(Machine.X86_64, STEPPED)
    assert not is_avoidable(Machine.AARCH64, STEPPED), "all functions are stepped there"
    assert not is_avoidable(Machine.X86_64, CHEAP)


@pytest.mark.parametrize(("machine", "cost"), [("x86_64", CHEAP), ("aarch64", STEPPED)])
def test_the_calibration_function_costs_as_much_as_typical_functions(machine: str, cost: TrapCost) -> None:
    assert place(Machine[machine.upper()], calibration._CODE[machine], NEWEST) == Placement(0, cost)


def instructions(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


@given(st.sampled_from(Machine), st.binary(max_size=LOOKAHEAD), st.sampled_from([(5, 15), NEWEST]))
def test_any_bytes_have_a_placement(machine: Machine, code: bytes, kernel: Version) -> None:
    placement = place(machine, code, kernel)
    assert placement.skip in (0, 4)
    assert placement.skip == 0 or placement.cost is TrapCost.EMULATED
