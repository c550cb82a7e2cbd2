"""Tells the kernel which functions show a position in the loop, or what a wait is for, once a stack had them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from otel_zernel_libraries.training.code_positions import position_of, role_of
from otel_zernel_libraries.training.library_folders import LibraryFolders
from otel_zernel_libraries.training.stacks import CodeLine
from otel_zernel_receivers.ebpf.kernel.kernel_structs import CODE_KEY, NUMBER, FramePosition
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.sampler.code_objects import CodeObject, read_code, read_heads
from otel_zernel_receivers.ebpf.sampler.layouts import Codes
from otel_zernel_receivers.ebpf.tables.samples import Frames

_MOST: Final = 8192
"""Stacks, and functions, of a process that are known at a time. A program that compiles makes ever new ones, in memory
that it uses again."""


@dataclass(slots=True)
class _Known:
    """What is known of a process."""

    stacks: set[int] = field(default_factory=set)
    codes: dict[int, FramePosition] = field(default_factory=dict)
    """By the address of the code object."""


class FramePositions:
    """The functions of all processes, by the tgid of each."""

    def __init__(self, table: Map, frames: Callable[[int], Frames | None]) -> None:
        """`table` is the kernel's. `frames` gives the frames of a stack."""
        self._table, self._frames = table, frames
        self._known: dict[int, _Known] = {}

    def add(self, tgid: int, own_pid: int, layout: Codes, folders: LibraryFolders, stacks: Iterable[int]) -> None:
        """Adds the functions in these stacks of a process. `own_pid` is its pid in the collector's pid namespace."""
        known = self._known.setdefault(tgid, _Known())
        if max(len(known.stacks), len(known.codes)) > _MOST:
            self.forget(tgid)
            known = self._known.setdefault(tgid, _Known())
        frames = [self._frames(stack) for stack in set(stacks) - known.stacks]
        known.stacks.update(stacks)
        codes = {place.code for of in frames if of for place in of.places} - known.codes.keys()
        with suppress(OSError):  # the process has ended
            for address, head in zip(codes, read_heads(own_pid, list(codes), layout), strict=True):
                code = read_code(own_pid, head, layout) if head else None
                known.codes[address] = self._put(tgid, address, code, folders)

    def _put(self, tgid: int, address: int, code: CodeObject | None, folders: LibraryFolders) -> FramePosition:
        position = _shown_by(code, folders) if code else FramePosition.ELSE
        if position is not FramePosition.ELSE:
            with suppress(OSError):  # the table is full
                self._table.put(_key(tgid, address), NUMBER.pack(position))
        return position

    def forget(self, tgid: int) -> None:
        """Forgets the functions of a process."""
        known = self._known.pop(tgid, _Known())
        for address, position in known.codes.items():
            if position is not FramePosition.ELSE:
                self._table.delete(_key(tgid, address))


def _shown_by(code: CodeObject, folders: LibraryFolders) -> FramePosition:
    shown = position_of(CodeLine(*code, 0, folders.path_of(code.file))) or role_of(code.file, code.name)
    return FramePosition[shown.name] if shown else FramePosition.ELSE


def _key(tgid: int, address: int) -> bytes:
    return np.array((address, tgid, 0), CODE_KEY).tobytes()
