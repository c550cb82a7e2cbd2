"""The distance of a thread's register from its `pthread_self()`, which is the id of a Python thread.

On x86-64 the register has the id itself, in glibc and in musl. On arm64 it has the end of the `struct pthread`, whose
size depends on the version of glibc. glibc exports it for debuggers. musl does not: its threads are not found there.
"""

import platform
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping, locate, open_located
from otel_zernel_receivers.ebpf.sampler.code_objects import part_of

_LIBRARY: Final = re.compile(r"lib(?:c|pthread)(?:\.so\.\d+|-2\.\d+\.so)")
"""Up to glibc 2.33, libpthread has the variable."""
_SIZE: Final = "_thread_db_sizeof_pthread"
_NUMBER: Final = struct.Struct("<I")


def register_distance(
    pid: int, mappings: Iterable[Mapping], proc_root: Path, own_pid: int, machine: str = platform.machine()
) -> int:
    """The distance in process `pid` of `proc_root`, bytes; 0 if it is not known. Raises OSError if it has ended.

    `own_pid` is its pid in the collector's pid namespace.
    """
    return 0 if machine == "x86_64" else _size_of_pthread(pid, mappings, proc_root, own_pid)


def _size_of_pthread(pid: int, mappings: Iterable[Mapping], proc_root: Path, own_pid: int) -> int:
    for mapping in mappings:
        if _LIBRARY.fullmatch(mapping.name):
            with suppress(UnreadableElf, FileNotFoundError), open_located(locate(proc_root, pid, mapping)) as fd:
                elf = ElfFile(fd)
                if address := elf.variable(_SIZE):
                    first = mapping.ranges[0]
                    content = part_of(own_pid, address + elf.bias(first.start, first.offset), _NUMBER.size)
                    return int(_NUMBER.unpack(content)[0]) if len(content) == _NUMBER.size else 0
    return 0
