"""The lines of the stacks that the kernel has seen, found while their code is still there."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from otel_zernel_libraries.training.library_folders import LibraryFolders
from otel_zernel_libraries.training.stacks import CodeLine
from otel_zernel_receivers.ebpf.sampler.code_lines import UNKNOWN_LINE, CodeLines
from otel_zernel_receivers.ebpf.sampler.layouts import Codes
from otel_zernel_receivers.ebpf.tables.samples import Frames

_MOST: Final = 4096
"""Stacks of a process between two calls of `take`."""


class PythonStack(NamedTuple):
    """A stack with its lines."""

    lines: tuple[CodeLine, ...]
    """The innermost first."""
    is_cut: bool
    """There are more frames."""


class StackLines:
    """The stacks of all processes. One thread at a time may use it."""

    def __init__(self, frames: Callable[[int], Frames | None]) -> None:
        """`frames` gives the frames of a stack."""
        self._frames, self._codes = frames, CodeLines()
        self._by_pid: dict[int, dict[int, PythonStack]] = {}

    def add(self, own_pid: int, layout: Codes, folders: LibraryFolders, stacks: Iterable[int]) -> None:
        """Finds the lines of stacks of a process. Those that cannot be read will be missing."""
        known = self._by_pid.setdefault(own_pid, {})
        new = [stack for stack in stacks if stack not in known]
        frames = {stack: of for stack in islice(new, _MOST - len(known)) if (of := self._frames(stack))}
        places = [place for of in frames.values() for place in of.places]
        with suppress(OSError):  # the process has ended
            lines = iter(self._codes.of(own_pid, layout, folders, places))
            for stack, of in frames.items():
                own = tuple(line for line in islice(lines, len(of.places)) if line is not UNKNOWN_LINE)
                if own:
                    known[stack] = PythonStack(own, of.is_cut or of.is_broken)

    def take(self, own_pid: int) -> Mapping[int, PythonStack]:
        """The stacks of a process since the last call."""
        return self._by_pid.pop(own_pid, {})

    def forget(self, own_pid: int) -> None:
        """Forgets the code of a process that has ended."""
        self._codes.forget(own_pid)
