"""The table of threads that make marks or call CUDA or NCCL: the time that each spends in each state.

The metrics are about those that call CUDA or NCCL, and have fewer states than the kernel.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.ledger.snapshots import STATES
from otel_zernel_receivers.ebpf.kernel.kernel_structs import NUMBER, THREAD_TIMES, ThreadState
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

_NAMES = {
    ThreadState.ON_CPU: "on_cpu",
    ThreadState.CPU_WAIT: "descheduled",
    ThreadState.GIL: "lock",
    ThreadState.FILE: "io",
    ThreadState.SOCKET: "io",
    ThreadState.PIPE: "io",
    ThreadState.LOCK: "lock",
    ThreadState.CHILD: "sleep",
    ThreadState.TIMER: "sleep",
    ThreadState.FAULT: "io",
    ThreadState.SWAP: "io",
    ThreadState.GPU_WAIT: "gpu_wait",
    ThreadState.LAUNCH_BLOCKED: "launch",
    ThreadState.COPY: "copy",
    ThreadState.COLLECTIVE: "collective",
    ThreadState.UNKNOWN: "sleep",
    ThreadState.CALLING: "launch",
    ThreadState.LAUNCHING: "launch",
    ThreadState.SETTLING: "collective",
    ThreadState.POLLING: "sleep",
    ThreadState.FAULTING: "io",
}
"""`zernel.thread.state` of each state."""
ACTIVITIES: Final[Mapping[int, Activity]] = {
    **{number: activity for number, activity in enumerate(STATES) if activity},
    ThreadState.SETTLING: Activity.GPU_WAIT,
    ThreadState.POLLING: Activity.SOCKET,
    ThreadState.FAULTING: Activity.FAULT,
}
"""The activity of each state. A thread on the CPU has none."""
NAMES = tuple(dict.fromkeys(_NAMES.values()))
"""The values of `zernel.thread.state`."""
_IN_CALLS = [name in ("gpu_wait", "launch", "copy", "collective") for name in NAMES]
_GROUPS = np.array([[name == group for group in NAMES] for name in _NAMES.values()], np.uint64)


@dataclass(frozen=True, slots=True)
class ThreadsReading:
    """The states of the threads of one process that call CUDA or NCCL, since the last reading."""

    process: WatchedProcess
    all_ns: Mapping[str, int]
    """The sum over these threads, by state."""
    lead_ns: Mapping[str, int]
    """The times of the thread that spent most of them in calls. Together they are the time since the last reading."""


class ThreadTimesTable:
    """The times of threads. The kernel claims elements and marks those of ended threads; `read` frees them."""

    def __init__(
        self, maps: Mapping[str, Map], rows: ProcessRows, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._rows, self._free, self._monotonic_ns = rows, maps["free_thread_times"], monotonic_ns
        self._elements: NDArray[np.void] = maps["thread_times"].array(THREAD_TIMES)
        self._read = np.zeros((len(self._elements), len(NAMES)), np.uint64)
        for index in reversed(range(len(self._elements))):
            self._free.put(None, NUMBER.pack(index))

    def read(self) -> list[ThreadsReading]:
        """The time in each state since the last call, up to now, by process."""
        used = np.flatnonzero(self._elements["generation"])
        elements = self._consistent(used)
        used, elements = used[elements["updates"] % 2 == 0], elements[elements["updates"] % 2 == 0]
        totals = self._up_to_now(elements)
        new = totals - self._read[used]
        self._read[used] = totals
        self._free_ended(used, elements)
        return self._by_process(elements, new)

    def now(self, process: WatchedProcess) -> dict[int, tuple[ThreadState, int]]:
        """The state of each thread of a process, and how long it has been in it, ns. By thread."""
        is_of_process = (self._elements["row"] == process.row) & (self._elements["generation"] == process.generation)
        elements = self._elements[is_of_process & (self._elements["has_ended"] == 0)]
        now = self._monotonic_ns()
        columns = (elements[name].tolist() for name in ("tid", "state", "since"))
        return {tid: (ThreadState(state), max(now - since, 0)) for tid, state, since in zip(*columns, strict=True)}

    def _consistent(self, used: NDArray[np.intp]) -> NDArray[np.void]:
        """A copy of these elements. Of one that the kernel was updating, `updates` is odd: its time comes later."""
        before = self._elements["updates"][used]
        elements = self._elements[used]
        elements["updates"] |= before != self._elements["updates"][used]
        return elements

    def _up_to_now(self, elements: NDArray[np.void]) -> NDArray[np.uint64]:
        totals: NDArray[np.uint64] = elements["times"][:, : len(ThreadState)].copy()
        now = np.maximum(np.uint64(self._monotonic_ns()), elements["since"])
        open_ns = np.where(elements["has_ended"], 0, now - elements["since"])
        totals[np.arange(len(elements)), elements["state"]] += open_ns
        grouped: NDArray[np.uint64] = totals @ _GROUPS
        return grouped

    def _free_ended(self, used: NDArray[np.intp], elements: NDArray[np.void]) -> None:
        for index in used[elements["has_ended"] > 0].tolist():
            self._elements[index]["generation"] = 0
            self._free.put(None, NUMBER.pack(index))

    def _by_process(self, elements: NDArray[np.void], new: NDArray[np.uint64]) -> list[ThreadsReading]:
        moved = np.flatnonzero(new.any(axis=1) & (elements["has_called"] > 0))
        order = moved[np.argsort(elements["row"][moved], kind="stable")]
        rows = elements["row"][order].astype(np.int64)
        begins = np.flatnonzero(np.diff(rows, prepend=-1))  # np.unique imports numpy.ma, which takes 3 MB
        readings = []
        for process, part in zip(self._rows.processes(rows[begins]), np.split(order, begins)[1:], strict=True):
            own = new[part[elements["generation"][part] == process.generation]]
            if len(own):
                lead = own[own[:, _IN_CALLS].sum(axis=1).argmax()]
                readings.append(ThreadsReading(process, _named(own.sum(axis=0)), _named(lead)))
        return readings


def _named(times: NDArray[Any]) -> dict[str, int]:
    return {name: ns for name, ns in zip(NAMES, times.tolist(), strict=True) if ns}
