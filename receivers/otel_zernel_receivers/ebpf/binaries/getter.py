"""Finds the field of an object that a function returns without doing anything else.

    uint64_t getSequencenumber() const { return seq_; }

The places of fields differ from release to release. Such a function shows the place.
"""

import re
import struct

from otel_zernel_receivers.ebpf.binaries.prologue import Machine

LOOKAHEAD = 16
"""Bytes of code that `returned_field` reads."""

# endbr64 in some builds; movq offset(%rdi), %rax or movzbl offset(%rdi), %eax, with an offset of 8 or of 32 bits; ret
_X86_64 = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?(?:\x48\x8b|\x0f\xb6)(?:\x47(.)|\x87(.{4}))\xc3", re.DOTALL)
# ldr x0, [x0, #offset] or ldrb w0, [x0, #offset]; ret; in some builds after bti c
_BTI, _RET = 0xD503245F, 0xD65F03C0
_LOADS = {0xF9400000: 8, 0x39400000: 1}
"""The unit of the offset, in bytes, by the instruction without its offset."""
_OFFSET, _OFFSET_AT = 0x003FFC00, 10
"""The bits of the offset."""
_INSTRUCTIONS = struct.Struct("<2I")


def returned_field(machine: Machine, code: bytes) -> int | None:
    """The offset of the field, in bytes from the begin of the object; None if a function that begins with `code` does
    anything else."""
    return _x86_64(code) if machine is Machine.X86_64 else _aarch64(code)


def _x86_64(code: bytes) -> int | None:
    found = _X86_64.match(code)
    offset = int.from_bytes(found[1] or found[2], "little", signed=True) if found else -1
    return offset if offset >= 0 else None


def _aarch64(code: bytes) -> int | None:
    begin = 4 if code.startswith(_BTI.to_bytes(4, "little")) else 0
    if len(code) < begin + _INSTRUCTIONS.size:
        return None
    load, last = _INSTRUCTIONS.unpack_from(code, begin)
    unit = _LOADS.get(load & ~_OFFSET, 0)
    return ((load & _OFFSET) >> _OFFSET_AT) * unit if unit and last == _RET else None
