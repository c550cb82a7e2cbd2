"""Finds the instructions with which functions return `true`, by the disassemblers of binutils.

The receiver finds them by patterns of bytes. This independent method knows where each instruction begins.
"""

import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import dropwhile, groupby
from typing import NamedTuple

from otel_zernel_receivers.ebpf.binaries.spellings import beginnings
from otel_zernel_receivers.ebpf.probes.catalogue import TORCH_CPU
from tests.receivers.ebpf.symbols.kept import Kept, Returns

OBJDUMP = {
    "x86_64": ("objdump", "--architecture=i386:x86-64"),
    "aarch64": ("aarch64-linux-gnu-objdump", "--architecture=aarch64"),
}
"""Debian's packages are binutils-x86-64-linux-gnu and binutils-aarch64-linux-gnu."""

_RETURN = re.compile(r"(repz )?ret[a-z]*$")
_TRUE = re.compile(r"mov +(\$0x1,%e?ax|\$0x1,%al|w0, #0x1)$")
_RESTORES = re.compile(r"pop |leave|add +\$\w+,%rsp|ldp |ldr |add sp,|autiasp")
_UNKNOWN = re.compile(r"(jmp +\*|br |\(bad\)|\.inst|udf)")
"""Indirect jumps, and bytes that are no instruction."""
_NEVER_GOES_ON = re.compile(r"(jmp|b|call|bl|ret[a-z]*)( |$)")
"""Instructions that may end a function. A call at the end is of a function that throws."""
_JUMP = re.compile(r"(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:.*, )?0x([0-9a-f]+)$")


_PROBED = tuple(name for probe in TORCH_CPU if probe.is_at_return for name in beginnings(probe.function))


def is_whole(name: str) -> bool:
    """Whether the function is stored whole: it has probes on its returns, or is a part of such a one (`.cold`)."""
    return name.encode().startswith(_PROBED)


def whole_functions(kept: Iterable[Kept]) -> list[Kept]:
    """The functions that are stored whole, once each.

    Symbols with `.org.0` are left out: BOLT leaves a jump to the function at its original place, with that name.
    """
    whole = (one._replace(table="") for one in kept if is_whole(one.name) and ".org." not in one.name)
    return list(dict.fromkeys(whole))


class DisassembledLine(NamedTuple):
    """One line of a disassembly."""

    offset: int
    """Bytes from the beginning of the function."""
    text: str


def returns_of_all(functions: Iterable[Kept]) -> Iterator[Returns]:
    """The returns of functions that are stored whole, and of their parts (`.cold`)."""
    for _, parts in groupby(functions, key=lambda function: (function.version, function.arch)):
        yield from _returns_of_parts(list(parts))


def _returns_of_parts(parts: Sequence[Kept]) -> Iterator[Returns]:
    codes = [(part, disassembled(bytes.fromhex(part.code), part.arch)) for part in parts]
    known = {part.address + instruction.offset for part, instructions in codes for instruction in instructions}
    for part, instructions in codes:
        _check(part, instructions, known)
        yield Returns(part.version, part.arch, part.name, tuple(_places(part, instructions)))


def _check(part: Kept, instructions: Sequence[DisassembledLine], known: Collection[int]) -> None:
    """Raises ValueError unless the code is complete: every jump leads to one of the instructions `known`.

    Otherwise the size could be wrong, a return could be missed, or the disassembler could be misaligned.
    """
    jumps = {part.address + target for target in _targets(instructions)}
    is_open = not _NEVER_GOES_ON.match(instructions[-1].text)
    if (
        is_open
        or any(_UNKNOWN.match(instruction.text) for instruction in instructions)
        or not {at % 2**64 for at in jumps} <= set(known)
    ):
        raise ValueError(f"{part.name} of {part.version} for {part.arch} is not complete")


def _places(part: Kept, instructions: Sequence[DisassembledLine]) -> Iterator[int]:
    """The places where the receiver probes the return: on x86-64 the instruction that sets the result, on arm64 `ret`.

    Raises ValueError if a return is not of `true`, or if a jump leads between the place and the return.
    """
    for index, last in enumerate(instructions):
        if _RETURN.match(last.text):
            value = _value(instructions[:index])
            if any(value.offset < target <= last.offset for target in _targets(instructions)):
                raise ValueError(f"{part.name} of {part.version}: a jump leads into the return at {value.offset}")
            yield value.offset if part.arch == "x86_64" else last.offset


def _targets(instructions: Iterable[DisassembledLine]) -> set[int]:
    """The targets of jumps, without calls."""
    return {int(match[1], 16) for instruction in instructions if (match := _JUMP.match(instruction.text))}


def _value(before: Sequence[DisassembledLine]) -> DisassembledLine:
    """The instruction that sets the result of a return. After it, only stack and registers are restored."""
    value = next(dropwhile(lambda one: _RESTORES.match(one.text), reversed(before)))
    if not _TRUE.match(value.text):
        raise ValueError(f"`{value.text}` in front of a return, which is not of true")
    return value


def disassembled(code: bytes, arch: str) -> list[DisassembledLine]:
    """All instructions of the code."""
    command, option = OBJDUMP[arch]
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        options = ["-D", "--target=binary", option, "--no-show-raw-insn", "--disassemble-zeroes", file.name]
        listing = subprocess.run([command, *options], capture_output=True, text=True, check=True).stdout
    return list(_instructions(listing))


def _instructions(listing: str) -> Iterator[DisassembledLine]:
    for offset, text in re.findall(r"^ *([0-9a-f]+):\t(.*)$", listing, re.MULTILINE):
        yield DisassembledLine(int(offset, 16), re.split(r"\s+(?://|#) ", text)[0].replace("\t", " ").rstrip())
