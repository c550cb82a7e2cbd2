"""Finds instructions in the code of functions by their shape: returns, a jump, or the load of a field."""

import re
import struct
from collections.abc import Iterator

from otel_zernel_receivers.ebpf.binaries.instructions import starts
from otel_zernel_receivers.ebpf.binaries.prologue import Machine

LONGEST = 4096
"""Bytes of the largest function that is searched for returns. A symbol with a larger size is assumed to be wrong."""
LOOKAHEAD = 16
"""Bytes of code that `tail_call` and `returned_field` read."""

# x86-64: the result (movl $1, %eax or movb $1, %al), then the release of the stack (addq, leave), restored registers
# (popq), and retq.
_RETURN_OF_TRUE = re.compile(
    rb"(\xb8\x01\0\0\0|\xb0\x01)(\x48\x83\xc4.|\x48\x81\xc4.{4})?(\x41?[\x58-\x5f])*\xc9?\xf3?\xc3", re.DOTALL
)
_RET = 0xD65F03C0  # without `retaa`, on which the kernel refuses probes
_JUMPS = {
    # movq (%rdi), %rdi; addq $offset, %rdi; jmp
    Machine.X86_64: re.compile(rb"\x48\x8b\x3f\x48\x83\xc7.(?=\xe9)", re.DOTALL),
    # ldr x0, [x0]; add x0, x0, #offset; b
    Machine.AARCH64: re.compile(rb"\0\0\x40\xf9\0[\0-\xfc][\0-\x3f]\x91(?=...[\x14-\x17])", re.DOTALL),
}
# endbr64 in some builds; movq offset(%rdi), %rax or movzbl offset(%rdi), %eax, with an offset of 8 or of 32 bits; ret
_FIELD = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?(?:\x48\x8b|\x0f\xb6)(?:\x47(.)|\x87(.{4}))\xc3", re.DOTALL)
# ldr x0, [x0, #offset] or ldrb w0, [x0, #offset]; ret; in some builds after bti c
_BTI = 0xD503245F
_LOADS = {0xF9400000: 8, 0x39400000: 1}
"""The unit of the offset, in bytes, by the instruction without its offset."""
_OFFSET, _OFFSET_AT = 0x003FFC00, 10
"""The bits of the offset."""
_INSTRUCTIONS = struct.Struct("<2I")


def returns_of_true(machine: Machine, code: bytes) -> list[int]:
    """The offsets at which a C++ function that returns `true` or throws begins to return.

    It must not have a return probe, which replaces the return address on the stack: if an exception passes it, the
    unwinder finds an unknown address and ends the program. A probe on the return instructions changes nothing on the
    stack, and exceptions do not execute them.
    """
    if machine is Machine.X86_64:
        begins = set(starts(code))  # the same bytes may occur inside an instruction
        return [match.start() for match in _RETURN_OF_TRUE.finditer(code) if match.start() in begins]
    return list(_arm_returns(code))


def _arm_returns(code: bytes) -> Iterator[int]:
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4])
    yield from (4 * index for index, word in enumerate(words) if word == _RET)


def tail_call(machine: Machine, code: bytes) -> int | None:
    """The offset of the jump in a function that only passes a member to another one; None if it does anything else.

        void exit(const pointer<Scope> &scope) { scope->member.end(); }

    At the jump, the first argument register has the address of the member. The kernel emulates jumps, while it would
    single-step the first instruction.
    """
    jump = _JUMPS[machine].match(code)
    return jump.end() if jump else None


def returned_field(machine: Machine, code: bytes) -> int | None:
    """The offset of the field that a function returns, in bytes from the begin of the object; None if it does anything
    else. The places of fields differ from release to release.

        uint64_t getSequencenumber() const { return seq_; }
    """
    return _x86_64_field(code) if machine is Machine.X86_64 else _aarch64_field(code)


def _x86_64_field(code: bytes) -> int | None:
    load = _FIELD.match(code)
    offset = int.from_bytes(load[1] or load[2], "little", signed=True) if load else -1
    return offset if offset >= 0 else None


def _aarch64_field(code: bytes) -> int | None:
    begin = 4 if code.startswith(_BTI.to_bytes(4, "little")) else 0
    if len(code) < begin + _INSTRUCTIONS.size:
        return None
    load, last = _INSTRUCTIONS.unpack_from(code, begin)
    unit = _LOADS.get(load & ~_OFFSET, 0)
    return ((load & _OFFSET) >> _OFFSET_AT) * unit if unit and last == _RET else None
