"""Files and their code, for tests that inspect them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping


@contextmanager
def open_elf(path: str | os.PathLike[str]) -> Iterator[ElfFile]:
    """Opens `path` for reading. Raises OSError, or UnreadableElf if it is no ELF file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield ElfFile(fd)
    finally:
        os.close(fd)


def code_at(pid: int, mapping: Mapping, offset: int, size: int) -> bytes | None:
    """`size` bytes of a mapped file as the process executes them, from a file offset on. None if they are not mapped.

    A probe is on them if they differ from the bytes in the file.
    """
    for part in mapping.ranges:
        if part.offset <= offset and offset + size <= part.offset + part.end - part.start:
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                return os.pread(memory.fileno(), size, part.start + offset - part.offset)
    return None
