"""The Python frames of the threads of a running process, from outside and without stopping it.

    python = PythonThreads(runtime, own_pid)
    python.frames(state, is_running=False)    # of a thread, the innermost first

A thread that runs changes its frames while they are read. They are read until two readings agree, a few times at most.
Then only the outer frames that both readings have are kept.
"""

import platform
import struct
from collections.abc import Mapping
from typing import Final

from otel_zernel_libraries.training.stacks import MOST_FRAMES, MOST_THREADS
from otel_zernel_receivers.ebpf.processes.process_memory import NUMBER, WORD, number_at, part_of
from otel_zernel_receivers.ebpf.sampler.runtimes import PythonRuntime, threads_of
from otel_zernel_receivers.ebpf.tables.samples import Place

_TRIES: Final = 3
_MOST_READ: Final = 4 * MOST_FRAMES
"""Frames that are read on the way to `MOST_FRAMES`: a call from C adds one that is no function."""
_TID_AFTER_ID: Final = 8
"""From 3.11 on, `native_thread_id` follows `thread_id` in the state of a thread."""
_TID_IN_PTHREAD: Final = {"x86_64": 720, "aarch64": 208}.get(platform.machine(), 0)
"""In the `struct pthread` of glibc, which the id of a thread is the address of."""
_HOLDER: Final = 8
"""In the GIL of every version: the state of the thread that took it last, and whether it is taken."""
_HELD: Final = struct.Struct("<Qi")


class PythonThreads:
    """The Python threads of one process. Memory that cannot be read gives no threads and no frames."""

    def __init__(self, runtime: PythonRuntime, own_pid: int) -> None:
        """`own_pid` is the pid of the process in the collector's pid namespace."""
        self.gil, self.codes = runtime.gil, runtime.layout.codes
        self._runtime, self._pid, self._layout = runtime, own_pid, runtime.layout.frames

    def states(self, own_tids: Mapping[int, int]) -> dict[int, int]:
        """The addresses of the states of its Python threads, by thread. Raises OSError if the process has ended.

        `own_tids` are its threads by their ids in its own pid namespace.
        """
        states = {}
        for thread, state in threads_of(self._runtime, self._pid, MOST_THREADS).items():
            places = state + self._layout.thread_id + _TID_AFTER_ID, thread + _TID_IN_PTHREAD
            tid = next((tid for at in places if (tid := number_at(self._pid, at, NUMBER)) in own_tids), 0)
            if tid:
                states[own_tids[tid]] = state
        return states

    def gil_holder(self) -> int:
        """The address of the state of the thread that holds the GIL; 0 if none does."""
        content = part_of(self._pid, self.gil.start + _HOLDER, _HELD.size)
        state, is_held = _HELD.unpack(content) if len(content) == _HELD.size else (0, 0)
        return int(state) if is_held else 0

    def frames(self, state: int, *, is_running: bool) -> list[Place]:
        """The frames of a thread, the innermost first, at most `MOST_FRAMES`."""
        places = self._frames(state)
        for _ in range(_TRIES if is_running else 0):
            before, places = places, self._frames(state)
            if before == places:
                return places
        return _common(before, places) if is_running else places

    def _frames(self, state: int) -> list[Place]:
        at, places = self._layout, list[Place]()
        frame = number_at(self._pid, state + at.frame)
        if at.is_indirect and frame:
            frame = number_at(self._pid, frame + at.frame_in_place)
        size = max(at.previous, at.code, at.instruction, at.owner) + WORD.size
        for _ in range(_MOST_READ):
            content = part_of(self._pid, frame, size) if frame and len(places) < MOST_FRAMES else b""
            if len(content) < size:
                break
            if not at.owner or content[at.owner] != at.shim:
                (instruction,) = struct.unpack_from("<I" if at.is_number else "<Q", content, at.instruction)
                places.append(Place(WORD.unpack_from(content, at.code)[0], instruction))
            (frame,) = WORD.unpack_from(content, at.previous)
        return places


def _common(before: list[Place], after: list[Place]) -> list[Place]:
    """The outer frames of two readings that are in the same functions."""
    count = 0
    for earlier, later in zip(reversed(before), reversed(after), strict=False):
        if earlier.code != later.code:
            break
        count += 1
    return after[len(after) - count :]
