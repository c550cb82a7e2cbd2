"""Where probes are put, from real first instructions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.prologue import LOOKAHEAD, Cost, Machine, Placement, place, returns_at_once

CHEAP, DEAR = Cost.EMULATED, Cost.STEPPED


@pytest.mark.parametrize(
    ("code", "skip", "cost"),
    [
        ("55 4889e5", 0, CHEAP),  # push rbp
        ("4157 4156", 0, CHEAP),  # push r15
        ("53", 0, CHEAP),  # push rbx, at the end of the file
        ("f30f1efa 55 4889e5", 4, CHEAP),  # endbr64; push rbp
        ("f30f1efa 4157", 4, CHEAP),  # endbr64; push r15
        ("f30f1efa e900000000", 4, CHEAP),  # endbr64; jmp
        ("f30f1efa 4883ec08", 0, DEAR),  # endbr64; sub rsp, 8
        ("f30f1efa", 0, DEAR),
        ("807f6800 745a", 4, CHEAP),  # cmpb $0, 0x68(rdi); je
        ("837f1001 7406", 4, CHEAP),  # cmpl $1, 0x10(rdi); je
        ("807f6800 4883ec08", 0, DEAR),  # cmpb; sub rsp, 8
        ("4883ec08", 0, DEAR),  # sub rsp, 8
        ("488d4708", 0, DEAR),  # lea rax, [rdi+8]
        ("41 8b07", 0, DEAR),  # mov eax, [r15]: the prefix of push, but no push
        ("0f84 00000000", 0, CHEAP),  # je
        ("0f1f4400 00", 0, DEAR),  # nop of several bytes
        ("", 0, DEAR),
    ],
)
def test_x86_64(code: str, skip: int, cost: Cost) -> None:
    assert place(Machine.X86_64, bytes.fromhex(code)) == Placement(skip, cost)


@pytest.mark.parametrize(
    ("words", "skip", "cost"),
    [
        ([0xA9BF7BFD], 0, DEAR),  # stp x29, x30, [sp, #-16]!
        ([0xD503245F, 0xA9BF7BFD], 0, DEAR),  # bti c; stp
        ([0xD503245F, 0x90000010], 4, CHEAP),  # bti c; adrp x16
        ([0xD503245F, 0x14000004], 4, CHEAP),  # bti c; b
        ([0xD503233F, 0x90000010], 0, DEAR),  # paciasp; adrp: never behind the signature
        ([0xD503245F, 0xD503233F], 0, DEAR),  # bti c; paciasp
        ([0x90000010], 0, CHEAP),  # adrp x16
        ([0xB4000040], 0, CHEAP),  # cbz x0
        ([0x37000040], 0, CHEAP),  # tbnz w0
        ([0x58000040], 0, CHEAP),  # ldr x0, literal
        ([0x54000041], 0, CHEAP),  # b.ne
        ([0xD61F0200], 0, CHEAP),  # br x16
        ([0xD10043FF], 0, DEAR),  # sub sp, sp, #16
    ],
)
def test_arm64(words: list[int], skip: int, cost: Cost) -> None:
    code = b"".join(word.to_bytes(4, "little") for word in words)
    assert place(Machine.AARCH64, code) == Placement(skip, cost)


@pytest.mark.parametrize(
    ("machine", "code", "is_empty"),
    [
        (Machine.X86_64, "c3", True),
        (Machine.X86_64, "f30f1efa c3", True),  # endbr64; ret
        (Machine.X86_64, "55 c3", False),
        (Machine.X86_64, "", False),
        (Machine.AARCH64, "c0035fd6", True),
        (Machine.AARCH64, "5f2403d5 c0035fd6", True),  # bti c; ret
        (Machine.AARCH64, "fd7bbfa9", False),
    ],
)
def test_a_function_that_does_nothing_is_known(machine: Machine, code: str, is_empty: bool) -> None:
    assert returns_at_once(machine, bytes.fromhex(code)) is is_empty


@given(st.sampled_from(Machine), st.binary(max_size=LOOKAHEAD))
def test_any_bytes_have_a_place(machine: Machine, code: bytes) -> None:
    placement = place(machine, code)
    assert placement.skip in (0, 4)
    assert placement.skip == 0 or placement.cost is Cost.EMULATED
