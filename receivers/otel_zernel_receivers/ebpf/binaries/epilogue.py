"""Where a function returns, by its code: for functions that throw, whose return cannot be hooked.

A return hook replaces the return address on the stack. An exception that passes it ends the program, since the unwinder
does not know that address. A probe on the instructions of the return itself changes nothing on the stack, and is never
reached by an exception.
"""

import re
import struct
from collections.abc import Iterator

from otel_zernel_receivers.ebpf.binaries.instructions import starts
from otel_zernel_receivers.ebpf.binaries.prologue import Machine

LONGEST = 4096
"""Bytes of a function whose returns are looked for. A larger size in a symbol is taken for wrong."""

# x86-64: the value (movl $1, %eax or movb $1, %al), the stack given back (addq, leave), registers restored (popq), and
# retq.
_RETURN_OF_TRUE = re.compile(
    rb"(\xb8\x01\0\0\0|\xb0\x01)(\x48\x83\xc4.|\x48\x81\xc4.{4})?(\x41?[\x58-\x5f])*\xc9?\xf3?\xc3", re.DOTALL
)
_RET = 0xD65F03C0  # `retaa`, which the kernel takes no probe on, is not among them


def returns_of_true(machine: Machine, code: bytes) -> list[int]:
    """The offsets in the code of a C++ function, which returns `true` or throws, at which it is about to return."""
    if machine is Machine.X86_64:
        begins = set(starts(code))  # bytes in the middle of an instruction may look the same
        return [found.start() for found in _RETURN_OF_TRUE.finditer(code) if found.start() in begins]
    return list(_arm_returns(code))


def _arm_returns(code: bytes) -> Iterator[int]:
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4])
    yield from (4 * index for index, word in enumerate(words) if word == _RET)
