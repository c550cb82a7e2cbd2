"""A small binding to libbpf 1.x: load an object, reach its maps, attach its programs.

    with closing(Object(path)) as bpf:
        bpf.maps["slots"].max_entries = 1024
        bpf.programs["probe"].prepare(AttachType.SESSION)
        bpf.load()
        link = attach_many(bpf.programs["probe"], AttachType.SESSION, library, offsets, cookies)

Links of uprobe.multi and of sessions are created by bpf(2) directly, since libbpf 1.1 supports neither. A `BpfError`
includes the messages of libbpf and of the verifier.
"""

import ctypes
import errno
import functools
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.freed_memory import give_back_memory
from otel_zernel_receivers.ebpf.kernel.libbpf_calls import libbpf


class AttachType(IntEnum):
    """The ways to attach a program to many file offsets by one link: `enum bpf_attach_type`."""

    MULTI = 48
    """At entries or at returns. Needs Linux 6.6."""
    SESSION = 57
    """At entries and returns. Needs Linux 6.13."""


_BPF_LINK_CREATE = 28
_BPF_F_UPROBE_MULTI_RETURN = 1
_LINK_UPROBE_MULTI = struct.Struct("=4I4Q4I")  # of union bpf_attr, as in linux/bpf.h

_BATCH = 4096
"""Keys that one system call reads. It must exceed a bucket of the hash map: the kernel returns whole buckets only."""


class _UprobeOpts(ctypes.Structure):
    """`struct bpf_uprobe_opts` of libbpf 1.0. Later versions recognize it by its size."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("ref_ctr_offset", ctypes.c_size_t),
        ("bpf_cookie", ctypes.c_uint64),
        ("retprobe", ctypes.c_bool),
        ("func_name", ctypes.c_char_p),
    )


class Link:
    """An attached program. Closing the link detaches it. The kernel does so too when this process ends in any way."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._stack = ExitStack()
        self._stack.callback(close)

    def close(self) -> None:
        """Detaches; safe to call twice."""
        self._stack.close()


class Map:
    """One map of an object. Keys and values are the bytes of C structs. Methods raise BpfError."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.name: str = libbpf().call.bpf_map__name(handle).decode()
        self.value_size: int = libbpf().call.bpf_map__value_size(handle)

    @property
    def fd(self) -> int:
        return int(libbpf().call.bpf_map__fd(self._handle))

    @property
    def max_entries(self) -> int:
        """The map's capacity. It can be changed before loading only."""
        return int(libbpf().call.bpf_map__max_entries(self._handle))

    @max_entries.setter
    def max_entries(self, count: int) -> None:
        libbpf().check(libbpf().call.bpf_map__set_max_entries(self._handle, count), f"resizing {self.name}")

    def initialize(self, value: bytes) -> None:
        """Sets the bytes of a data section. Call it before loading."""
        code = libbpf().call.bpf_map__set_initial_value(self._handle, value, len(value))
        libbpf().check(code, f"initializing {self.name} with {len(value)} bytes")

    def get(self, key: bytes) -> bytes | None:
        """The value at a key; None if the map does not have the key."""
        value = ctypes.create_string_buffer(self.value_size)
        code = libbpf().call.bpf_map_lookup_elem(self.fd, key, value)
        if code == -errno.ENOENT:
            return None
        libbpf().check(code, f"looking up {self.name}")
        return value.raw

    def put(self, key: bytes | None, value: bytes) -> None:
        """Sets the value at a key, or pushes it on a stack (key None)."""
        libbpf().check(libbpf().call.bpf_map_update_elem(self.fd, key, value, 0), f"updating {self.name}")

    def delete(self, key: bytes) -> None:
        """Removes a key, if the map has it."""
        code = libbpf().call.bpf_map_delete_elem(self.fd, key)
        if code != -errno.ENOENT:
            libbpf().check(code, f"deleting from {self.name}")

    def items(
        self, keys: np.dtype[Any], values: np.dtype[Any], *, removed: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The keys of a hash map and their values, as structs of these types, read in batches; `removed` by it.

        Keys that are added or removed during the call may be missing.
        """
        call = libbpf().call
        read = call.bpf_map_lookup_and_delete_batch if removed else call.bpf_map_lookup_batch
        bucket = ctypes.create_string_buffer(4)  # where the kernel continues; opaque to us
        batches: list[tuple[NDArray[Any], NDArray[Any]]] = []
        since, code = None, 0
        while not code:
            count, batch = ctypes.c_uint32(_BATCH), (np.empty(_BATCH, keys), np.empty(_BATCH, values))
            places = since, bucket, *(array.ctypes.data for array in batch)
            code = read(self.fd, *places, ctypes.byref(count), None)
            if code != -errno.ENOENT:  # returned with the last batch
                libbpf().check(code, f"reading {self.name}")
            batches.append((batch[0][: count.value], batch[1][: count.value]))
            since = bucket
        return np.concatenate([of_keys for of_keys, _ in batches]), np.concatenate([of for _, of in batches])

    def keys(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The keys of a hash map as structs of this type."""
        return self.items(dtype, np.dtype((np.void, self.value_size)))[0]

    def delete_all(self, keys: NDArray[Any]) -> None:
        """Removes keys in batches. Keys that the map does not have are skipped."""
        keys = np.ascontiguousarray(keys)
        while len(keys):
            count = ctypes.c_uint32(len(keys))
            code = libbpf().call.bpf_map_delete_batch(self.fd, keys.ctypes.data, ctypes.byref(count), None)
            if code != -errno.ENOENT:
                libbpf().check(code, f"deleting from {self.name}")
            keys = keys[count.value + (code == -errno.ENOENT) :]

    def array(self, dtype: np.dtype[Any], size: int | None = None) -> NDArray[Any]:
        """The contents of an array with BPF_F_MMAPABLE, or its first `size` bytes, shared with the kernel.

        They are numbers or structs of this type. Raises ValueError if the map's elements do not have that size.
        """
        if self.value_size % 8 or self.value_size % dtype.itemsize:
            raise ValueError(f"elements of {self.name} have {self.value_size} bytes, not {dtype.itemsize}")
        size = self.max_entries * self.value_size if size is None else size
        memory = mmap.mmap(self.fd, (size + mmap.PAGESIZE - 1) & -mmap.PAGESIZE)
        return np.frombuffer(memory, dtype, size // dtype.itemsize)


class Program:
    """One program of an object."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.name: str = libbpf().call.bpf_program__name(handle).decode()

    @property
    def fd(self) -> int:
        return int(libbpf().call.bpf_program__fd(self._handle))

    def skip(self) -> None:
        """Leaves the program out of `Object.load`."""
        libbpf().check(libbpf().call.bpf_program__set_autoload(self._handle, False), f"skipping {self.name}")

    def prepare(self, attach_type: AttachType) -> None:
        """Prepares the program for `attach_many`. Call it before loading."""
        code = libbpf().call.bpf_program__set_expected_attach_type(self._handle, attach_type)
        libbpf().check(code, f"preparing {self.name}")

    def attach(self) -> Link:
        """Attaches to the tracepoint that the name of the program's section gives."""
        return self._link(libbpf().call.bpf_program__attach(self._handle), f"attaching {self.name}")

    def attach_event(self, event: int) -> Link:
        """Attaches to an open event of perf_event_open(2). Closing the link also closes the event."""
        return self._link(
            libbpf().call.bpf_program__attach_perf_event(self._handle, event), f"attaching {self.name} to an event"
        )

    def attach_perf(self, path: str, offset: int, cookie: int, semaphore: int = 0, *, at_return: bool) -> Link:
        """Attaches to one file offset by a perf link, for all processes. Needs Linux 5.15 and CAP_SYS_ADMIN.

        `semaphore` is the file offset of a counter that the kernel raises meanwhile; 0 if there is none.
        """
        options = _UprobeOpts(ctypes.sizeof(_UprobeOpts), semaphore, cookie, at_return, None)
        every_process = -1
        link = libbpf().call.bpf_program__attach_uprobe_opts(
            self._handle, every_process, os.fsencode(path), offset, ctypes.byref(options)
        )
        return self._link(link, f"attaching {self.name} to {path}+{offset:#x}")

    def _link(self, link: int | None, tried: str) -> Link:
        if not link:
            raise libbpf().error(tried)
        return Link(lambda: libbpf().call.bpf_link__destroy(link))


def attach_many(
    program: Program,
    attach_type: AttachType,
    path: str,
    offsets: Sequence[int],
    cookies: Sequence[int],
    semaphores: Sequence[int] = (),
    *,
    at_return: bool = False,
) -> Link:
    """Attaches a prepared program to many file offsets by one link, for all processes."""
    count, flags = len(offsets), _BPF_F_UPROBE_MULTI_RETURN if at_return else 0
    path_bytes = ctypes.create_string_buffer(os.fsencode(path))
    columns = [(ctypes.c_uint64 * count)(*column) for column in (offsets, cookies, semaphores or [0] * count)]
    path_at = ctypes.addressof(path_bytes)
    offsets_at, cookies_at, semaphores_at = (ctypes.addressof(column) for column in columns)
    if not any(semaphores):
        semaphores_at = 0
    attributes = _LINK_UPROBE_MULTI.pack(
        program.fd, 0, attach_type, 0, path_at, offsets_at, semaphores_at, cookies_at, count, flags, 0, 0
    )
    fd = libbpf().bpf(_BPF_LINK_CREATE, attributes, f"attaching {program.name} to {count} places of {path}")
    return Link(functools.partial(os.close, fd))


class Object:
    """The maps and programs of one object file.

    Closing it unloads programs and maps that no link uses. Raises BpfError.
    """

    def __init__(self, path: Path) -> None:
        self._handle = libbpf().call.bpf_object__open_file(os.fsencode(path), None)
        if not self._handle:
            raise libbpf().error(f"opening {path}")
        call = libbpf().call
        self.programs = {program.name: program for program in map(Program, self._walk(call.bpf_object__next_program))}
        self.maps = {table.name: table for table in map(Map, self._walk(call.bpf_object__next_map))}

    def _walk(self, following: Callable[[int, int | None], int | None]) -> list[int]:
        handles: list[int] = []
        handle = following(self._handle, None)
        while handle:
            handles.append(handle)
            handle = following(self._handle, handle)
        return handles

    @property
    def constants(self) -> Map:
        """The map with the object's constants (`.rodata`)."""
        return next(table for name, table in self.maps.items() if name.endswith(".rodata"))

    def load(self) -> None:
        """Creates the maps and has the kernel verify the programs."""
        libbpf().check(libbpf().call.bpf_object__load(self._handle), "loading the BPF programs")
        give_back_memory()  # the 10 MB that libbpf used for the kernel's types

    def try_to_load(self) -> bool:
        """The same, without the messages of libbpf: it calls Python for each, which a busy interpreter delays. Returns
        whether the kernel accepts the programs; else the object is of no use."""
        with libbpf().silenced():
            is_loaded = int(libbpf().call.bpf_object__load(self._handle)) >= 0
        give_back_memory()
        return is_loaded

    def close(self) -> None:
        """Unloads; safe to call twice."""
        if self._handle:
            libbpf().call.bpf_object__close(self._handle)
            self._handle = None
