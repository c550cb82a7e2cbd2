"""Finds out from the stack of a blocked thread whether it waits in a collective of `torch.distributed`.

Probes show that only if they were on before the wait began. The return addresses on the stack show it at any time.
Frames are not unwound.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.spellings import beginnings
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping, locate, open_located
from otel_zernel_receivers.ebpf.sampler.code_objects import part_of

_FUNCTIONS: Final = (
    "c10d::Work::wait",
    "c10d::ProcessGroupGloo::SendWork::wait",
    "c10d::ProcessGroupGloo::RecvWork::wait",
    "c10d::Reducer::finalize_backward",
)
_LIBRARY: Final = "libtorch_cpu.so"
_SIZE: Final = 4_096
"""Bytes of the stack that are read: the wait is in one of its innermost frames."""


def collective_waits(proc_root: Path, pid: int, mappings: Iterable[Mapping]) -> list[range]:
    """The addresses of the functions in a process in which threads wait for other ranks."""
    names = [name for function in _FUNCTIONS for name in beginnings(function)]
    for mapping in mappings:
        if mapping.name == _LIBRARY:
            with suppress(OSError, UnreadableElf), open_located(locate(proc_root, pid, mapping)) as fd:
                elf = ElfFile(fd)
                bias = elf.bias(mapping.ranges[0].start, mapping.ranges[0].offset)
                found = (symbol for symbols in elf.find_beginning(names).values() for symbol in symbols)
                return [range(bias + one.address, bias + one.address + one.size) for one in found]
    return []


def is_on_stack(own_pid: int, stack: int, functions: Iterable[range]) -> bool:
    """Whether one of the functions is on a stack, by its stack pointer. Raises OSError if the process has ended."""
    content = part_of(own_pid, stack & ~7, _SIZE)
    words = np.frombuffer(content[: len(content) & ~7], "<u8")
    return any(bool(((words >= one.start) & (words < one.stop)).any()) for one in functions)
