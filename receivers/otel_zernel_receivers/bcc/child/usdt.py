"""Static probes (USDT). BCC finds them; they are attached here, because BCC writes their semaphores into one process.

The kernel counts a semaphore itself if it knows its place (Linux 4.20): for all processes of the file, also later ones.
ELF files are little-endian ones of 64 bits, as on x86-64 and arm64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from otel_zernel_receivers.bcc.child.system import attach_uprobe

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD = 1


def file_offset(path: str, address: int) -> int:
    """The offset of a virtual address in the file. Raises `ValueError` if no loaded segment contains it."""
    with Path(path).open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        table, size, count = header[5], header[9], header[10]
        file.seek(table)
        segments = [_SEGMENT.unpack_from(file.read(size)) for _ in range(count)]
    for kind, _, offset, start, _, in_file, _, _ in segments:
        if kind == _LOAD and start <= address < start + in_file:
            return int(address - start + offset)
    raise ValueError(f"{path} contains nothing at the address {address:#x}")


_CONSTANT, _OFFSET, _IDENTIFIER, _BASE, _INDEX, _SCALE = (1 << bit for bit in range(6))
"""The flags `valid` of BCC's usdt.BCC_USDT_ARGUMENT_FLAGS."""
_PAGE = 0xFFF
"""The bits of an address that are the same in the file and in every process."""


class ProbedPlace(NamedTuple):
    """An instruction to probe."""

    path: str
    offset: int
    counter: int
    """The offset of the probe's semaphore, or 0 if it has none."""


class StaticProbe:
    """A probe of a file, `provider:name`, that runs one function of a program."""

    def __init__(self, path: str, name: str, function: str) -> None:
        from bcc import USDT

        provider, _, short = name.partition(":")
        self._context = USDT(path=path)  # it owns the memory of the probes
        enumerate_probes = [
            enumerate_probe
            for enumerate_probe in self._context.enumerate_probes()
            if enumerate_probe.short_name() == f"{provider}:{short}"
        ]
        if not enumerate_probes:
            raise ValueError(f"{path} has no static probe {name}")
        self._function = function
        self._semaphore = enumerate_probes[0].semaphore
        self._locations = [
            enumerate_probes[0].get_location(index) for index in range(enumerate_probes[0].num_locations)
        ]
        self.readers = self._text()
        """The C functions that `bpf_usdt_readarg(n, ctx, &value)` becomes in the program's function."""

    def _text(self) -> str:
        count = min(location.num_arguments for location in self._locations)
        return "".join(self._reader(index) for index in range(count))

    def places(self) -> Iterator[ProbedPlace]:
        """The instructions of the probe: one for each place in the source where the compiler put it."""
        for location in self._locations:
            path = location.bin_path.decode()
            counter = file_offset(path, self._semaphore) if self._semaphore else 0
            yield ProbedPlace(path, file_offset(path, location.address), counter)

    def _reader(self, index: int) -> str:
        pairs = {(location.address & _PAGE, _value(location.get_argument(index))) for location in self._locations}
        ways = dict(sorted(pairs))
        if len(set(ways.values())) == 1 and len(ways) == len(pairs):
            body = next(iter(ways.values()))
        elif len(ways) < len(pairs):
            raise ValueError("the places of the static probe cannot be told apart: use an uprobe")
        else:
            where = f"PT_REGS_IP(ctx) & {_PAGE:#x}"
            body = " else ".join(f"if (({where}) == {low:#x}) {{ {way} }}" for low, way in ways.items())
        return (
            f"static __always_inline int _bpf_readarg_{self._function}_{index + 1}"
            f"(struct pt_regs *ctx, void *dest, size_t len) {{ s64 value = 0; {body} {_STORE} }}\n"
        )


_STORE = (
    "if (len == 8) *(s64 *)dest = value; else if (len == 4) *(s32 *)dest = value; "
    "else if (len == 2) *(s16 *)dest = value; else if (len == 1) *(s8 *)dest = value; else return -1; return 0;"
)


def _value(argument: Any) -> str:
    """C code that sets `value`, a number of 64 bits, to the argument."""
    kind = f"{'s' if argument.signed else 'u'}{argument.size * 8}"
    if argument.valid & _CONSTANT:
        return f"value = ({kind}){argument.constant};"
    if argument.valid & _IDENTIFIER or not argument.valid & _BASE:
        raise ValueError("an argument of the static probe has a form that cannot be read: use an uprobe")
    place = f"ctx->{argument.base_register_name.decode()}"
    if not argument.valid & _OFFSET:
        return f"value = ({kind}){place};"
    if argument.valid & _INDEX:
        scale = argument.scale if argument.valid & _SCALE else 1
        place += f" + ctx->{argument.index_register_name.decode()} * {scale}"
    address = f"(void *)({place} + ({argument.deref_offset}))"
    return f"{{ {kind} read = 0; bpf_probe_read_user(&read, sizeof(read), {address}); value = read; }}"


def attach(program: int, probe: StaticProbe, pid: int) -> list[int]:
    """Runs the loaded program at every place of the probe. Returns the links' fds. Raises `OSError`."""
    return [attach_uprobe(program, place.path, place.offset, place.counter, pid) for place in probe.places()]
