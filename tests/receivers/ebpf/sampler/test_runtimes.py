"""The Python of a running process is found from outside: real interpreters of each version."""

import ctypes
import os
import struct
import sys
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.symtab import find_section
from otel_zernel_receivers.ebpf.processes.files.mappings import executable_mappings
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.sampler import layouts, runtimes
from otel_zernel_receivers.ebpf.sampler.runtimes import (
    PythonRuntime,
    UnreadablePython,
    find_runtime,
    interpreter_in,
    threads_of,
)
from tests.receivers.ebpf.sampler.pythons import MINORS, python_of
from tests.receivers.ebpf.talking import started, talking
from tests.waiting import wait_for

PROC = Path("/proc")

HOLDER = """
import ctypes, threading, time
def wait():
    while True:
        time.sleep(0.001)
threading.Thread(target=wait, daemon=True).start()
print("ready", flush=True)
ctypes.PyDLL(None).sleep(60)
"""
"""Its main thread holds the GIL, and its other thread waits for it."""


def runtime_of(pid: int) -> PythonRuntime | None:
    folder = ProcessFolder(PROC, pid)
    return find_runtime(pid, interpreter_in(executable_mappings(folder.maps), folder.executable))


def waited_for(pid: int) -> set[int]:
    """The addresses of the futexes that the other threads of a process wait for, by the kernel."""
    tasks = (task for task in (PROC / str(pid) / "task").iterdir() if task.name != str(pid))
    calls = [(task / "syscall").read_text().split() for task in tasks]
    return {int(call[1], 16) for call in calls if call[0] == "202"}


@pytest.mark.parametrize("minor", MINORS)
def test_a_thread_that_waits_for_the_gil_waits_inside_the_range_that_is_found(minor: int) -> None:
    with talking(python_of(minor), "-c", HOLDER) as program:
        assert gil_of(program.pid).version == (3, minor)


def gil_of(pid: int) -> PythonRuntime:
    """The Python of a process whose other thread waits for the GIL."""
    wait_for(lambda: bool(waited_for(pid)))
    runtime = runtime_of(pid)
    assert runtime
    assert all(address in runtime.gil for address in waited_for(pid))
    return runtime


def test_an_interpreter_without_its_own_library_is_found() -> None:
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip(f"no {python}")
    with talking(python, "-c", HOLDER) as program:
        assert gil_of(program.pid)


@pytest.mark.parametrize("minor", MINORS)
def test_the_section_of_the_interpreter_has_the_address_of_its_variable(minor: int) -> None:
    with talking(python_of(minor), "-c", HOLDER) as program:
        mappings = interpreter_in(executable_mappings(ProcessFolder(PROC, program.pid).maps), "")
        found = []
        for mapping in mappings:
            with Path(mapping.path).open("rb") as file:
                found.append(
                    (ElfFile(file.fileno()).variable("_PyRuntime"), find_section(file.fileno(), b".PyRuntime"))
                )
    by_symbol, by_section = next(pair for pair in found if pair[0])
    if by_section is None:
        pytest.skip(f"Python 3.{minor} has no section .PyRuntime")
    assert by_section.address == by_symbol


def test_a_program_without_python_has_none() -> None:
    with started("sleep", "60") as program:
        assert runtime_of(program.pid) is None


def test_an_address_without_memory_is_no_error_of_the_receiver() -> None:
    with pytest.raises(UnreadablePython, match="not as its version says"):
        runtimes._word(os.getpid(), 8)


def test_threads_are_listed_by_the_ids_that_they_have_themselves() -> None:
    script = "import threading, time; print(threading.get_ident(), flush=True); time.sleep(60)"
    with started(sys.executable, "-c", script) as program:
        own = int(program.line())
        runtime = runtime_of(program.pid)
        assert runtime
        assert threads_of(runtime, program.pid, 16).keys() == {own}


def test_a_list_of_threads_without_an_end_is_read_once() -> None:
    layout = layouts.LAYOUTS[3, 11]
    states = ctypes.create_string_buffer(1024)
    first, second = ctypes.addressof(states), ctypes.addressof(states) + 512
    for state, following in (first, second), (second, first):
        at = state - first
        struct.pack_into("<Q", states, at + layout.next_thread, following)
        struct.pack_into("<Q", states, at + layout.frames.thread_id, 7)
    interpreter = ctypes.c_uint64(first)
    address = ctypes.addressof(interpreter) - layout.threads
    runtime = PythonRuntime((3, 11), 0, layout, address, range(1))
    assert threads_of(runtime, os.getpid(), 16) == {7: second}
    assert len(threads_of(runtime, os.getpid(), 1)) == 1


def test_offsets_that_cannot_be_right_give_no_layout() -> None:
    words = [layouts._COOKIE, 0x030D00F0, 0, *range(3, 37)]
    words[23] = 1 << 63
    debug_offsets = layouts.debug_offsets(layouts._DEBUG_OFFSETS.pack(*words))
    assert debug_offsets
    assert debug_offsets.layout is None


def begin_of(version: int, *, free_threaded: int = 0) -> bytes:
    """The begin of `_PyRuntime` with `_Py_DebugOffsets`, whose words are numbered."""
    return layouts._DEBUG_OFFSETS.pack(layouts._COOKIE, version, free_threaded, *range(3, 37))


def test_a_build_without_a_gil_is_recognized() -> None:
    debug_offsets = layouts.debug_offsets(begin_of(0x030D00F0, free_threaded=1))
    assert debug_offsets
    assert debug_offsets.is_free_threaded


def test_from_python_3_13_on_the_interpreter_itself_gives_the_offsets() -> None:
    debug_offsets = layouts.debug_offsets(begin_of(0x030D00F0))
    assert debug_offsets
    assert debug_offsets.version == (3, 13)
    assert debug_offsets.layout
    assert (debug_offsets.layout.main_interpreter, debug_offsets.layout.gil, debug_offsets.layout.threads) == (
        5 + 8,
        14,
        9,
    )


def test_a_version_that_is_newer_than_the_reader_has_no_layout() -> None:
    debug_offsets = layouts.debug_offsets(begin_of(0x030F00F0))
    assert debug_offsets
    assert (debug_offsets.version, debug_offsets.layout) == ((3, 15), None)


def test_memory_that_is_no_interpreter_has_no_debug_offsets() -> None:
    assert layouts.debug_offsets(bytes(layouts.DEBUG_OFFSETS_SIZE)) is None
    assert layouts.debug_offsets(begin_of(0x030D00F0)[:8]) is None


def test_the_size_of_a_pthread_is_found_in_the_c_library() -> None:
    with talking(sys.executable, "-c", "print('ready', flush=True); input()") as program:
        mappings = executable_mappings(ProcessFolder(Path("/proc"), program.pid).maps)
        if not any(mapping.name == "libc.so.6" for mapping in mappings):
            pytest.skip("the interpreter does not run on glibc")
        size = runtimes.register_distance(program.pid, mappings, Path("/proc"), program.pid, "aarch64")
        assert size % 64 == 0
        assert 1024 < size < 8192
        assert runtimes.register_distance(program.pid, mappings, Path("/proc"), program.pid, "x86_64") == 0
        assert runtimes.register_distance(program.pid, [], Path("/proc"), program.pid, "aarch64") == 0
