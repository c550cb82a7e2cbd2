"""Return instructions are found in the last instructions of real functions."""

import pytest

from otel_zernel_receivers.ebpf.binaries.epilogue import returns_of_true
from otel_zernel_receivers.ebpf.binaries.prologue import Machine

JUMP = "0f85 e1000000"


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
    assert returns_of_true(Machine.X86_64, bytes.fromhex(code)) == expected


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
    assert returns_of_true(Machine.AARCH64, code + b"\xc0") == expected
