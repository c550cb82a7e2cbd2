"""Finds the return instructions of functions that may throw an exception, which must not have a return probe.

A return probe replaces the return address on the stack. If an exception passes it, the unwinder finds an unknown
address and ends the program. A probe on the return instructions changes nothing on the stack, and exceptions do not
execute them.
"""

import re
import struct
from collections.abc import Iterator

from otel_zernel_receivers.ebpf.binaries.instructions import starts
from otel_zernel_receivers.ebpf.binaries.prologue import Machine

LONGEST = 4096
"""Bytes of the largest function that is searched. A symbol with a larger size is assumed to be wrong."""

# x86-64: the result (movl $1, %eax or movb $1, %al), then the release of the stack (addq, leave), restored registers
# (popq), and retq.
_RETURN_OF_TRUE = re.compile(
    rb"(\xb8\x01\0\0\0|\xb0\x01)(\x48\x83\xc4.|\x48\x81\xc4.{4})?(\x41?[\x58-\x5f])*\xc9?\xf3?\xc3", re.DOTALL
)
_RET = 0xD65F03C0  # without `retaa`, on which the kernel refuses probes


def returns_of_true(machine: Machine, code: bytes) -> list[int]:
    """The offsets at which a C++ function that returns `true` or throws begins to return."""
    if machine is Machine.X86_64:
        begins = set(starts(code))  # the same bytes may occur inside an instruction
        return [found.start() for found in _RETURN_OF_TRUE.finditer(code) if found.start() in begins]
    return list(_arm_returns(code))


def _arm_returns(code: bytes) -> Iterator[int]:
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4])
    yield from (4 * index for index, word in enumerate(words) if word == _RET)
