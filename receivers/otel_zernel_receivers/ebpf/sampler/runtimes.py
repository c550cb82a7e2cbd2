"""Finds the Python interpreter of a running process, from outside: its version, and the place of its lock, the GIL.

    runtime = find_runtime(folder, executable_mappings(folder.maps), pid)   # None: no Python
    runtime.gil                                                             # a range of addresses

The interpreter's file exports the variable `_PyRuntime`. Everything else is read from the process's memory.
"""

import platform
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.binaries.symtab import find_section
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping, locate, open_located
from otel_zernel_receivers.ebpf.processes.process_memory import NUMBER, WORD, number_at, part_of
from otel_zernel_receivers.ebpf.sampler.layouts import (
    DEBUG_OFFSETS_SIZE,
    GIL_SIZE,
    LAYOUTS,
    Layout,
    Version,
    debug_offsets,
    version_of,
)

_INTERPRETER = re.compile(r"(?:lib)?python(\d)?(?:\.(\d+))?[^/]*")
_LIBRARY = re.compile(r"lib(?:c|pthread)(?:\.so\.\d+|-2\.\d+\.so)")
"""Up to glibc 2.33, libpthread has the variable `_SIZE`."""
_SIZE = "_thread_db_sizeof_pthread"
_LONGEST_LIST = 1024
"""Threads of a process that are read: its memory may say anything."""
_HIGHEST = 1 << 63
"""No address of a process is higher."""


class UnreadablePython(Exception):
    """The process runs Python, and its interpreter cannot be read. The text is the reason."""


class PythonRuntime(NamedTuple):
    """The Python interpreter of a process."""

    version: Version
    address: int
    """Of `_PyRuntime`."""
    layout: Layout
    interpreter: int
    """The address of the main interpreter."""
    gil: range
    """The addresses of its GIL."""


def interpreter_in(mappings: Iterable[Mapping], executable: str) -> list[Mapping]:
    """The mappings that may be of the interpreter. `executable` is the path of the process's program."""
    return [mapping for mapping in mappings if _INTERPRETER.fullmatch(mapping.name) or mapping.path == executable]


def find_runtime(
    pid: int, mappings: Sequence[Mapping], proc_root: Path = Path("/proc"), own_pid: int = 0
) -> PythonRuntime | None:
    """The Python of process `pid` of `proc_root`; None if none of the mappings is of an interpreter.

    `own_pid` is its pid in the collector's pid namespace, by default the same. Raises UnreadablePython, and OSError if
    the process has ended.
    """
    for mapping in mappings:
        with suppress(UnreadableElf, FileNotFoundError):
            try:
                if exported := _exported(proc_root, pid, mapping):
                    return _read(own_pid or pid, *exported, _named_version(mappings))
            except PermissionError as error:
                raise UnreadablePython(f"{error}; memory needs CAP_SYS_PTRACE, files CAP_DAC_READ_SEARCH") from error
    return None


def _exported(proc_root: Path, pid: int, mapping: Mapping) -> tuple[int, int | None] | None:
    """The addresses of `_PyRuntime` and of `Py_Version`, which Python 3.9 and 3.10 do not have."""
    with open_located(locate(proc_root, pid, mapping)) as fd:
        elf = ElfFile(fd)
        section = find_section(fd, b".PyRuntime")
        runtime = elf.variable("_PyRuntime") or (section.address if section else None)
        if runtime is None:
            return None
        version = elf.variable("Py_Version")
        first = mapping.ranges[0]
        bias = elf.bias(first.start, first.offset)
        return runtime + bias, None if version is None else version + bias


def _named_version(mappings: Iterable[Mapping]) -> Version | None:
    """As in libpython3.10.so.1.0 or bin/python3.10."""
    names = (_INTERPRETER.fullmatch(mapping.name) for mapping in mappings)
    return next(((int(name[1]), int(name[2])) for name in names if name and name[1] and name[2]), None)


def _read(pid: int, runtime: int, version_at: int | None, named: Version | None) -> PythonRuntime:
    known = debug_offsets(_memory(pid, runtime, DEBUG_OFFSETS_SIZE))
    if known:
        version, layout = known.version, known.layout
        if known.is_free_threaded:
            raise UnreadablePython("it is a free-threaded build, which has no GIL")
    else:
        version = version_of(_word(pid, version_at)) if version_at else named or (0, 0)
        layout = LAYOUTS.get(version)
    if not layout:
        spelled = ".".join(map(str, version)) if any(version) else "of an unknown version"
        raise UnreadablePython(f"Python {spelled} is none of 3.9 to 3.14")
    interpreter = _word(pid, runtime + layout.main_interpreter)
    if not interpreter:
        raise UnreadablePython("its interpreter has not started yet")
    gil = runtime + layout.gil if layout.gil_is_in_runtime else _word(pid, interpreter + layout.gil)
    if not 0 < gil < _HIGHEST:
        raise UnreadablePython("its memory is not as its version says")
    return PythonRuntime(version, runtime, layout, interpreter, range(gil, gil + GIL_SIZE))


def has_runtime(own_pid: int, runtime: PythonRuntime) -> bool:
    """Whether a process has this Python at the same addresses: it is a fork. Raises OSError."""
    try:
        return _word(own_pid, runtime.address + runtime.layout.main_interpreter) == runtime.interpreter
    except UnreadablePython:
        return False


def threads_of(runtime: PythonRuntime, own_pid: int, most: int) -> dict[int, int]:
    """The states of the main interpreter's oldest threads, by their ids as pthread_self() gives them. Raises OSError.

    The list changes while it is read, so threads that begin or end may be missing. The main thread is its last one.
    """
    layout, ids = runtime.layout, dict[int, int]()
    fields = layout.frames.thread_id, layout.next_thread
    try:
        state = _word(own_pid, runtime.interpreter + layout.threads)
        for _ in range(_LONGEST_LIST):
            if not state or state in ids:
                break
            content = _memory(own_pid, state, max(fields) + WORD.size)
            ids[state], state = (WORD.unpack_from(content, at)[0] for at in fields)
    except UnreadablePython:
        return {}
    return {thread: state for state, thread in list(ids.items())[-most:]}


def _word(pid: int, address: int) -> int:
    """The number at an address. Raises OSError if the memory cannot be read, UnreadablePython if there is none."""
    (value,) = WORD.unpack(_memory(pid, address, WORD.size))
    return int(value)


def _memory(pid: int, address: int, size: int) -> bytes:
    content = part_of(pid, address, size)
    if len(content) < size:
        raise UnreadablePython("its memory is not as its version says")
    return content


def register_distance(
    pid: int, mappings: Iterable[Mapping], proc_root: Path, own_pid: int, machine: str = platform.machine()
) -> int:
    """The distance of a thread's register from its `pthread_self()`, which is the id of a Python thread, bytes.

    On x86-64 the register has the id itself, in glibc and in musl. On arm64 it has the end of the `struct pthread`,
    whose size depends on the version of glibc. glibc exports it for debuggers. musl does not: 0, its threads are not
    found there. Raises OSError if process `pid` of `proc_root` has ended.
    """
    for mapping in mappings if machine != "x86_64" else ():
        if _LIBRARY.fullmatch(mapping.name):
            with suppress(UnreadableElf, FileNotFoundError), open_located(locate(proc_root, pid, mapping)) as fd:
                elf = ElfFile(fd)
                if address := elf.variable(_SIZE):
                    first = mapping.ranges[0]
                    return number_at(own_pid, address + elf.bias(first.start, first.offset), NUMBER)
    return 0
