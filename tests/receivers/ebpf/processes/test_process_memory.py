"""Memory of processes, this one's for the most part."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.process_memory import memory_of
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder


def test_memory_is_read_as_it_is() -> None:
    content = ctypes.create_string_buffer(b"a\0b", 8192)
    assert memory_of(os.getpid(), ctypes.addressof(content), 8192) == content.raw


def test_what_is_not_mapped_cannot_be_read() -> None:
    with pytest.raises(OSError, match="Bad address"):
        memory_of(os.getpid(), 8, 16)


def test_a_process_that_has_ended_cannot_be_read() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        memory_of(process.pid, 4096, 16)


def test_an_environment_read_from_memory_is_the_file_s() -> None:
    own = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(own[47]), int(own[48])
    assert memory_of(os.getpid(), start, end - start) == Path("/proc/self/environ").read_bytes()
    assert "PATH" in ProcessFolder(Path("/proc"), os.getpid()).environment(["PATH"], os.getpid())
