"""Finds the jump of a function that only passes a member of an object to another function.

    void exit(const pointer<Scope> &scope) { scope->member.end(); }

Its argument is a reference to a pointer. At the jump, the first argument register has the address of the member. The
kernel emulates jumps, while it would single-step the first instruction.
"""

import re

from otel_zernel_receivers.ebpf.binaries.prologue import Machine

LOOKAHEAD = 12
"""Bytes of code that `tail_call` reads."""

_JUMPS = {
    # movq (%rdi), %rdi; addq $offset, %rdi; jmp
    Machine.X86_64: re.compile(rb"\x48\x8b\x3f\x48\x83\xc7.(?=\xe9)", re.DOTALL),
    # ldr x0, [x0]; add x0, x0, #offset; b
    Machine.AARCH64: re.compile(rb"\0\0\x40\xf9\0[\0-\xfc][\0-\x3f]\x91(?=...[\x14-\x17])", re.DOTALL),
}


def tail_call(machine: Machine, code: bytes) -> int | None:
    """The offset of the jump in a function that begins with `code`; None if it does anything else."""
    found = _JUMPS[machine].match(code)
    return found.end() if found else None
