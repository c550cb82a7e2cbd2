"""Memory of processes is read correctly, mostly on this process itself."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.process_memory import memories_of, memory_of
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder


def test_memory_has_the_bytes_of_the_process() -> None:
    content = ctypes.create_string_buffer(b"a\0b", 8192)
    assert memory_of(os.getpid(), ctypes.addressof(content), 8192) == content.raw


def test_unmapped_memory_cannot_be_read() -> None:
    with pytest.raises(OSError, match="Bad address"):
        memory_of(os.getpid(), 8, 16)


def test_a_process_that_has_ended_cannot_be_read() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        memory_of(process.pid, 4096, 16)


def test_the_environment_in_memory_is_that_of_the_file() -> None:
    own = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(own[47]), int(own[48])
    assert memory_of(os.getpid(), start, end - start) == Path("/proc/self/environ").read_bytes()
    assert "PATH" in ProcessFolder(Path("/proc"), os.getpid()).environment(["PATH"], os.getpid())


def test_many_pieces_of_memory_are_read_at_once_and_those_that_are_none_are_empty() -> None:
    contents = [ctypes.create_string_buffer(b"%d" % number, 16) for number in range(3000)]
    starts = [ctypes.addressof(content) for content in contents]
    starts[5] = starts[6] = starts[-1] = 8
    pieces = memories_of(os.getpid(), starts, 16)
    assert [piece == content.raw for piece, content in zip(pieces, contents, strict=True)].count(False) == 3
    assert (pieces[5], pieces[6], pieces[-1]) == (b"", b"", b"")


def test_no_pieces_of_memory_need_no_process() -> None:
    assert memories_of(os.getpid(), [], 16) == []
