"""Where a function returns, by its code: for functions that throw, whose return cannot be hooked.

A return hook replaces the return address on the stack. An exception that passes it ends the program, since the unwinder
does not know that address. A probe on the instructions of the return itself changes nothing on the stack, and is never
reached by an exception.
"""

import re
import struct
from collections.abc import Iterator

from otel_zernel_receivers.ebpf.prologue import Machine

LONGEST = 4096
"""Bytes of a function whose returns are looked for. A larger size in a symbol is taken for wrong."""

# x86-64: the value (movl $1, %eax or movb $1, %al), the stack given back (addq, leave), registers restored (popq), and
# retq. A probe in the middle of an instruction would break the program. So a return with nothing to restore does not
# count: the 3 bytes `b0 01 c3` may be part of a call's displacement. Longer matches would need an implausible one.
# Nor does a value behind what may be a prefix: `41 b8` loads another register.
_RETURN_OF_TRUE = re.compile(
    rb"(?<![\x40-\x4f])(\xb8\x01\0\0\0|\xb0\x01)(?=[^\xc3\xf3])(\x48\x83\xc4.|\x48\x81\xc4.{4})?"
    rb"(\x41?[\x58-\x5f])*\xc9?\xf3?\xc3",
    re.DOTALL,
)
_RET = 0xD65F03C0  # `retaa`, which the kernel takes no probe on, is not among them


def returns_of_true(machine: Machine, code: bytes) -> list[int]:
    """The offsets in the code of a C++ function, which returns `true` or throws, at which it is about to return."""
    if machine is Machine.X86_64:
        return [found.start() for found in _RETURN_OF_TRUE.finditer(code)]
    return list(_arm_returns(code))


def _arm_returns(code: bytes) -> Iterator[int]:
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4])
    yield from (4 * index for index, word in enumerate(words) if word == _RET)
