"""Finds out from the stacks of blocked threads whether they wait in collectives of `torch.distributed`, and in which.

Probes show that only if they were on before the wait began. The return addresses on the stack show it at any time.
Frames are not unwound.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile, Symbol
from otel_zernel_receivers.ebpf.binaries.spellings import beginnings
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.hangs.gloo_works import Words, WorkLayout
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping as MappedFile
from otel_zernel_receivers.ebpf.processes.files.mappings import locate, open_located

_WAITS: Final = (
    "c10d::Work::wait",
    "c10d::ProcessGroupGloo::SendWork::wait",
    "c10d::ProcessGroupGloo::RecvWork::wait",
    "c10d::Reducer::finalize_backward",
)
_MOVES: Final = ("c10d::ProcessGroupGloo::AsyncWork::execute",)
_LIBRARY: Final = "libtorch_cpu.so"


class TorchCode(NamedTuple):
    """The code of `torch.distributed` in a process. All empty without it."""

    waits: Sequence[range] = ()
    """The addresses of the functions in which threads wait for other ranks."""
    moves: Sequence[range] = ()
    """The same of those in which threads of gloo move the data of a collective."""
    works: WorkLayout | None = None


def torch_code(proc_root: Path, pid: int, mappings: Iterable[MappedFile]) -> TorchCode:
    """Finds the code in the mapped files of a process."""
    for mapping in mappings:
        if mapping.name == _LIBRARY:
            with suppress(OSError, UnreadableElf), open_located(locate(proc_root, pid, mapping)) as fd:
                elf = ElfFile(fd)
                bias = elf.bias(mapping.ranges[0].start, mapping.ranges[0].offset)
                symbols = elf.find_beginning(name for function in (*_WAITS, *_MOVES) for name in beginnings(function))
                waits, moves = (_ranges(symbols, bias, functions) for functions in (_WAITS, _MOVES))
                return TorchCode(waits, moves, WorkLayout.of(elf, bias))
    return TorchCode()


def _ranges(symbols: Mapping[str, Sequence[Symbol]], bias: int, functions: Iterable[str]) -> list[range]:
    names = tuple(name.decode() for function in functions for name in beginnings(function))
    named = (symbol for name, several in symbols.items() if name.startswith(names) for symbol in several)
    return [range(bias + symbol.address, bias + symbol.address + symbol.size) for symbol in named]


def is_on_stack(words: Words, functions: Iterable[range]) -> bool:
    """Whether one of the functions is on a stack."""
    return any(bool(((words >= each.start) & (words < each.stop)).any()) for each in functions)
