"""The distance of a thread's register from its id is that of the C library of the process."""

import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.files.mappings import executable_mappings
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.sampler.thread_registers import register_distance

PROC = Path("/proc")
PROGRAM = "print('ready', flush=True); input()"


def test_the_size_of_a_pthread_is_found_in_the_c_library() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout
        program.stdout.readline()
        mappings = executable_mappings(ProcessFolder(PROC, program.pid).maps)
        if not any(mapping.name == "libc.so.6" for mapping in mappings):
            pytest.skip("the interpreter does not run on glibc")
        size = register_distance(program.pid, mappings, PROC, program.pid, "aarch64")
        assert size % 64 == 0
        assert 1024 < size < 8192
        assert register_distance(program.pid, mappings, PROC, program.pid, "x86_64") == 0
        assert register_distance(program.pid, [], PROC, program.pid, "aarch64") == 0
        program.communicate()
