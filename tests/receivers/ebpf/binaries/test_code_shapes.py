"""Returns, the jump and the field of real functions are found, and nothing in functions that do more."""

import pytest

from otel_zernel_receivers.ebpf.binaries.code_shapes import LOOKAHEAD, returned_field, returns_of_true, tail_call
from otel_zernel_receivers.ebpf.binaries.prologue import Machine
from tests.receivers.ebpf.symbols.kept import Kept, symbols
from tests.receivers.ebpf.symbols.rebuilt import MACHINES

JUMP = "0f85 e1000000"
EXITS = [symbol for symbol in symbols("torch") if "record_function_exit_new" in symbol.name]
X86, ARM = Machine.X86_64, Machine.AARCH64


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # c10d::Work::wait of PyTorch 2.1 to 2.13
        (f"{JUMP} 4883c428 b801000000 5b 5d 415c 415d 415e 415f c3", [10]),
        (f"{JUMP} b801000000 4883c428 5b 5d c3", [6]),
        ("b801000000 4881c400010000 5b c3", [0]),
        ("b001 5b c3", [0]),  # as LLVM writes it
        ("b801000000 c9 c3", [0]),
        ("b801000000 c3", [0]),
        ("836db001 c9 c3", []),  # subl $1, -0x50(%rbp)
        ("f0836fb001 5b c3", []),  # lock subl $1, -0x50(%rdi)
        ("c64424b001 4883c418 c3", []),  # movb $1, -0x50(%rsp)
        ("c74424b801000000 5b c3", []),  # movl $1, -0x48(%rsp)
        ("c5f877 b801000000 5b c3", []),  # vzeroupper is not supported, so the walk ends
        ("41b801000000 5b c3", []),  # of another register
        ("e8b001c3ff 5b c3", []),  # a call, whose displacement looks like a return
        ("b801000000 5b c3 90 b801000000 5d c3", [0, 8]),
        ("b800000000 5b c3", []),  # returns false
        ("31c0 5b c3", []),
        ("b801000000 e8 00000000 5b c3", []),  # an argument of a call
        ("b801000000 5b", []),  # cut off
        ("", []),
    ],
)
def test_returns_on_x86_64(code: str, expected: list[int]) -> None:
    assert returns_of_true(X86, bytes.fromhex(code)) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([0x52800020, 0xA8C27BFD, 0xD65F03C0], [8]),  # mov w0, 1; ldp x29, x30, [sp], 32; ret
        ([0x52800020, 0xD65F0BFF], []),  # retaa
        ([0xD65F03C0, 0xD503201F, 0xD65F03C0], [0, 8]),
        ([0xD61F0200], []),  # br x16
    ],
)
def test_returns_on_aarch64(words: list[int], expected: list[int]) -> None:
    code = b"".join(word.to_bytes(4, "little") for word in words)
    assert returns_of_true(ARM, code + b"\xc0") == expected


@pytest.mark.parametrize("exit_function", EXITS, ids=lambda symbol: f"{symbol.version}-{symbol.arch}")
def test_the_jump_is_found_in_every_release(exit_function: Kept) -> None:
    code = bytes.fromhex(exit_function.code)
    machine = MACHINES[exit_function.arch]
    assert tail_call(machine, code[:LOOKAHEAD]) == {X86: 7, ARM: 8}[machine]


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (X86, "488b3f4883c710e8b4a9d7fb"),  # call instead of jmp
        (X86, "488b374883c710e9b4a9d7fb"),  # another register
        (X86, "554889e5488b3f4883c710e9"),  # more before it
        (ARM, "000040f90040009142befa96"),  # bl instead of b
        (ARM, "010040f90040009142befa16"),  # another register
        (ARM, "000040f900400091fd7bbea9"),  # no jump
        (X86, "488b3f4883c710"),
        (ARM, ""),
    ],
)
def test_a_function_that_does_more_has_no_such_jump(machine: Machine, code: str) -> None:
    assert tail_call(machine, bytes.fromhex(code)) is None


@pytest.mark.parametrize(
    ("machine", "code", "offset"),
    [
        (X86, "488b8718010000c30f1f8400", 0x118),  # AsyncWork::getSequencenumber of PyTorch 2.13
        (X86, "488b87e0000000c30f1f8400", 0xE0),  # ... of PyTorch 2.6
        (X86, "0fb6477cc390662e0f1f8400", 0x7C),  # Work::retrieveOpType of both
        (X86, "f30f1efa488b4710c3", 0x10),  # after endbr64
        (ARM, "008c40f9c0035fd6", 0x118),  # ldr x0, [x0, #280]; ret
        (ARM, "5f2403d500f04139c0035fd6", 0x7C),  # bti c; ldrb w0, [x0, #124]; ret
    ],
)
def test_the_field_that_a_function_returns_is_found(machine: Machine, code: str, offset: int) -> None:
    assert returned_field(machine, bytes.fromhex(code)) == offset


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (X86, "488b87180100004883c001c3"),  # it adds 1
        (X86, "488b8618010000c3"),  # of the second argument
        (X86, "4883ec08488d0d8d"),
        (X86, "488b47f0c3"),  # before the object
        (X86, ""),
        (ARM, "008c40f900040091"),  # add x0, x0, #1 in place of ret
        (ARM, "208c40f9c0035fd6"),  # of x1
        (ARM, "018c40f9c0035fd6"),  # into x1
        (ARM, "008c40f9"),
    ],
)
def test_a_function_that_does_more_has_no_such_field(machine: Machine, code: str) -> None:
    assert returned_field(machine, bytes.fromhex(code)) is None
