"""A small binding to libbpf 1.x: load an object, reach its maps, attach its programs.

    with Object(path) as bpf:
        bpf.maps["slots"].max_entries = 1024
        bpf.load()
        link = attach_session(bpf.programs["call"], library, offsets, cookies)

Links of uprobe.multi and sessions are made by bpf(2) itself, since libbpf 1.1 knows neither. What libbpf and the
verifier say to a failure is part of the `BpfError`.
"""

import ctypes
import errno
import functools
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_LINK_CREATE = 28
_BPF_TRACE_UPROBE_MULTI = 48
_BPF_TRACE_UPROBE_SESSION = 57
_BPF_F_UPROBE_MULTI_RETURN = 1
_LINK_UPROBE_MULTI = struct.Struct("=4I4Q4I")  # of union bpf_attr, as in linux/bpf.h

_LIBBPF_WARN, _LIBBPF_INFO, _LIBBPF_DEBUG = range(3)
_LOG_LINES = 40
_LOG_MESSAGE = 1 << 20  # libbpf hands on a verifier's log in one message
_LOG_LAST = 4000

_int, _u32, _u64, _size = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
_pointer, _string = ctypes.c_void_p, ctypes.c_char_p
_PrintFn = ctypes.CFUNCTYPE(_int, _int, _string, _pointer)  # the last is a va_list, a pointer on both ABIs

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_file": (_pointer, [_string, _pointer]),
    "bpf_object__load": (_int, [_pointer]),
    "bpf_object__close": (None, [_pointer]),
    "bpf_object__next_program": (_pointer, [_pointer, _pointer]),
    "bpf_object__next_map": (_pointer, [_pointer, _pointer]),
    "bpf_program__name": (_string, [_pointer]),
    "bpf_program__fd": (_int, [_pointer]),
    "bpf_program__set_autoload": (_int, [_pointer, ctypes.c_bool]),
    "bpf_program__set_expected_attach_type": (_int, [_pointer, _int]),
    "bpf_program__attach": (_pointer, [_pointer]),
    "bpf_program__attach_uprobe_opts": (_pointer, [_pointer, _int, _string, _size, _pointer]),
    "bpf_link__destroy": (_int, [_pointer]),
    "bpf_map__name": (_string, [_pointer]),
    "bpf_map__fd": (_int, [_pointer]),
    "bpf_map__key_size": (_u32, [_pointer]),
    "bpf_map__value_size": (_u32, [_pointer]),
    "bpf_map__max_entries": (_u32, [_pointer]),
    "bpf_map__set_max_entries": (_int, [_pointer, _u32]),
    "bpf_map__set_initial_value": (_int, [_pointer, _string, _size]),
    "bpf_map_lookup_elem": (_int, [_int, _string, _string]),
    "bpf_map_update_elem": (_int, [_int, _string, _string, _u64]),
    "bpf_map_delete_elem": (_int, [_int, _string]),
    "bpf_map_get_next_key": (_int, [_int, _string, _string]),
    "libbpf_version_string": (_string, []),
    "libbpf_set_print": (_pointer, [_PrintFn]),
}


class BpfError(OSError):
    """What libbpf or the kernel refused: errno, what was tried, and the end of libbpf's log with the verifier's."""


class _UprobeOpts(ctypes.Structure):
    """`struct bpf_uprobe_opts` as of libbpf 1.0; later versions know it by its size."""

    _fields_ = (
        ("sz", _size),
        ("ref_ctr_offset", _size),
        ("bpf_cookie", _u64),
        ("retprobe", ctypes.c_bool),
        ("func_name", _string),
    )


class _Library:
    """libbpf.so.1 and what it has logged lately. Raises OSError where it is not installed."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._log: list[str] = []
        self._print = _PrintFn(self._on_print)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self.call: Any = library
        library.libbpf_set_print(self._print)

    def _on_print(self, level: int, template: bytes, arguments: int) -> int:
        if level <= _LIBBPF_WARN:
            message = ctypes.create_string_buffer(_LOG_MESSAGE)
            self._libc.vsnprintf(message, _size(_LOG_MESSAGE), _string(template), _pointer(arguments))
            self._log.append(message.value.decode(errors="replace").rstrip()[-_LOG_LAST:])
            del self._log[:-_LOG_LINES]
        return 0

    def error(self, tried: str, code: int = 0) -> BpfError:
        """The error of a call that answered `code` (-errno), or set errno."""
        number = -code if code < 0 else ctypes.get_errno()
        log, self._log = "\n".join(self._log), []
        return BpfError(number, f"{tried}: {os.strerror(number)}" + (f"\n{log}" if log else ""))

    def check(self, code: int, tried: str) -> int:
        """The answer of a call, unless it is an error."""
        if code < 0:
            raise self.error(tried, code)
        return code

    def give_back_memory(self) -> None:
        """For reading the kernel's types libbpf takes 10 MB, which glibc would keep; others have no such call."""
        if trim := getattr(self._libc, "malloc_trim", None):
            trim(0)

    def bpf(self, command: int, attributes: bytes, tried: str) -> int:
        """bpf(2) itself."""
        number = _SYS_BPF[os.uname().machine]
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        return self.check(self._libc.syscall(number, command, buffer, len(attributes)), tried)


@functools.cache
def _libbpf() -> _Library:
    return _Library()


def missing() -> str | None:
    """One sentence on what to install, if libbpf is not there."""
    try:
        _libbpf()
    except (OSError, AttributeError) as error:
        return f"the ebpf receiver needs libbpf 1.x (Debian and Ubuntu: apt-get install libbpf1): {error}"
    return None


def version() -> str:
    """libbpf's, as in `v1.1`. Only where nothing is `missing`."""
    return str(_libbpf().call.libbpf_version_string().decode())


class Link:
    """An attached program. Closing it detaches; so does the end of this process, however it ends."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._stack = ExitStack()
        self._stack.callback(close)

    def close(self) -> None:
        """Detaches; safe to call twice."""
        self._stack.close()


class Map:
    """One map of an object. Keys and values are the bytes of the C structs."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.name: str = _libbpf().call.bpf_map__name(handle).decode()
        self.value_size: int = _libbpf().call.bpf_map__value_size(handle)
        self.key_size: int = _libbpf().call.bpf_map__key_size(handle)

    @property
    def fd(self) -> int:
        return int(_libbpf().call.bpf_map__fd(self._handle))

    @property
    def max_entries(self) -> int:
        """The map's capacity, to be changed before loading only."""
        return int(_libbpf().call.bpf_map__max_entries(self._handle))

    @max_entries.setter
    def max_entries(self, count: int) -> None:
        _libbpf().check(_libbpf().call.bpf_map__set_max_entries(self._handle, count), f"resizing {self.name}")

    def initialize(self, value: bytes) -> None:
        """Sets a data section's bytes, before loading."""
        code = _libbpf().call.bpf_map__set_initial_value(self._handle, value, len(value))
        _libbpf().check(code, f"initializing {self.name} with {len(value)} bytes")

    def get(self, key: bytes) -> bytes | None:
        """The value at a key."""
        value = ctypes.create_string_buffer(self.value_size)
        code = _libbpf().call.bpf_map_lookup_elem(self.fd, key, value)
        if code == -errno.ENOENT:
            return None
        _libbpf().check(code, f"looking up {self.name}")
        return value.raw

    def put(self, key: bytes | None, value: bytes) -> None:
        """Sets the value at a key, or pushes it on a stack (key None)."""
        _libbpf().check(_libbpf().call.bpf_map_update_elem(self.fd, key, value, 0), f"updating {self.name}")

    def delete(self, key: bytes) -> None:
        """Removes a key; none is fine."""
        code = _libbpf().call.bpf_map_delete_elem(self.fd, key)
        if code != -errno.ENOENT:
            _libbpf().check(code, f"deleting from {self.name}")

    def __iter__(self) -> Iterator[bytes]:
        """The keys that are there now; those that come and go meanwhile may be missing."""
        found: list[bytes] = []
        key: bytes | None = None
        following = ctypes.create_string_buffer(self.key_size)
        while len(found) < self.max_entries and not _libbpf().call.bpf_map_get_next_key(self.fd, key, following):
            key = following.raw
            found.append(key)
        return iter(found)

    def array(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The contents of an mmapable array as numbers or structs of this type, shared with the kernel.

        Raises ValueError if its elements cannot be such.
        """
        if self.value_size % 8 or self.value_size % dtype.itemsize:
            raise ValueError(f"elements of {self.name} have {self.value_size} bytes, not {dtype.itemsize}")
        size = self.max_entries * self.value_size
        memory = mmap.mmap(self.fd, (size + mmap.PAGESIZE - 1) & -mmap.PAGESIZE)
        return np.frombuffer(memory, dtype, size // dtype.itemsize)


class Program:
    """One program of an object."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.name: str = _libbpf().call.bpf_program__name(handle).decode()

    @property
    def fd(self) -> int:
        return int(_libbpf().call.bpf_program__fd(self._handle))

    def skip(self) -> None:
        """Leaves the program out of `Object.load`."""
        _libbpf().check(_libbpf().call.bpf_program__set_autoload(self._handle, False), f"skipping {self.name}")

    def prepare_multi(self) -> None:
        """To be attached by `attach_multi`; before loading."""
        self._expect(_BPF_TRACE_UPROBE_MULTI)

    def prepare_session(self) -> None:
        """To be attached by `attach_session`; before loading."""
        self._expect(_BPF_TRACE_UPROBE_SESSION)

    def _expect(self, attach_type: int) -> None:
        code = _libbpf().call.bpf_program__set_expected_attach_type(self._handle, attach_type)
        _libbpf().check(code, f"preparing {self.name}")

    def attach(self) -> Link:
        """Attaches to what the program's section names (a raw tracepoint)."""
        return self._link(_libbpf().call.bpf_program__attach(self._handle), f"attaching {self.name}")

    def attach_perf(self, path: str, offset: int, cookie: int, *, at_return: bool) -> Link:
        """Attaches to one file offset by a perf event, for all processes. Needs Linux 5.15 and CAP_SYS_ADMIN."""
        options = _UprobeOpts(ctypes.sizeof(_UprobeOpts), 0, cookie, at_return, None)
        every_process = -1
        link = _libbpf().call.bpf_program__attach_uprobe_opts(
            self._handle, every_process, os.fsencode(path), offset, ctypes.byref(options)
        )
        return self._link(link, f"attaching {self.name} to {path}+{offset:#x}")

    def _link(self, link: int | None, tried: str) -> Link:
        if not link:
            raise _libbpf().error(tried)
        return Link(lambda: _libbpf().call.bpf_link__destroy(link))


def attach_multi(
    program: Program, path: str, offsets: Sequence[int], cookies: Sequence[int], *, at_return: bool
) -> Link:
    """Attaches an entry or a return program to many file offsets by one link, for all processes. Needs Linux 6.6."""
    flags = _BPF_F_UPROBE_MULTI_RETURN if at_return else 0
    return _attach_many(program, path, offsets, cookies, _BPF_TRACE_UPROBE_MULTI, flags)


def attach_session(program: Program, path: str, offsets: Sequence[int], cookies: Sequence[int]) -> Link:
    """Attaches one program to entry and return of many file offsets by one link. Needs Linux 6.13."""
    return _attach_many(program, path, offsets, cookies, _BPF_TRACE_UPROBE_SESSION, 0)


def _attach_many(
    program: Program, path: str, offsets: Sequence[int], cookies: Sequence[int], attach_type: int, flags: int
) -> Link:
    count = len(offsets)
    path_bytes = ctypes.create_string_buffer(os.fsencode(path))
    offset_array, cookie_array = (_u64 * count)(*offsets), (_u64 * count)(*cookies)
    addresses = (ctypes.addressof(array) for array in (path_bytes, offset_array, cookie_array))
    path_at, offsets_at, cookies_at = addresses
    attributes = _LINK_UPROBE_MULTI.pack(
        program.fd, 0, attach_type, 0, path_at, offsets_at, 0, cookies_at, count, flags, 0, 0
    )
    fd = _libbpf().bpf(_BPF_LINK_CREATE, attributes, f"attaching {program.name} to {count} places of {path}")
    return Link(functools.partial(os.close, fd))


class Object:
    """The maps and programs of one object file. Closing it unloads what no link holds."""

    def __init__(self, path: Path) -> None:
        self._handle = _libbpf().call.bpf_object__open_file(os.fsencode(path), None)
        if not self._handle:
            raise _libbpf().error(f"opening {path}")
        call = _libbpf().call
        self.programs = {one.name: one for one in map(Program, self._walk(call.bpf_object__next_program))}
        self.maps = {one.name: one for one in map(Map, self._walk(call.bpf_object__next_map))}

    def _walk(self, following: Callable[[int, int | None], int | None]) -> list[int]:
        handles: list[int] = []
        handle = following(self._handle, None)
        while handle:
            handles.append(handle)
            handle = following(self._handle, handle)
        return handles

    @property
    def constants(self) -> Map:
        """The section of constants."""
        return next(one for name, one in self.maps.items() if name.endswith(".rodata"))

    def load(self) -> None:
        """Creates the maps and has the kernel verify the programs."""
        _libbpf().check(_libbpf().call.bpf_object__load(self._handle), "loading the BPF programs")
        _libbpf().give_back_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unloads; safe to call twice."""
        if self._handle:
            _libbpf().call.bpf_object__close(self._handle)
            self._handle = None
