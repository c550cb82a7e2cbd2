"""The table of samples: what the threads of training processes ran when the sampler's clock ticked."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.kernel.kernel_structs import COUNT, SAMPLE_COUNT, SAMPLE_KEY, STACK, Code, Interval
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

INTERRUPT_NS: Final = 25_000
"""Of the clock's interrupt around each sample, on a nested virtual machine: `python -m benchmarks sampler_cost`."""
_ACTIVITIES: Final[Mapping[int, Activity]] = {
    Code.OPERATOR: Activity.OPERATOR,
    Code.PYTHON: Activity.PYTHON,
    Code.NATIVE: Activity.NATIVE,
}


_LOADS: Final = frozenset({(Interval.DATA_LOADING + 1) * 2, (Interval.DATA_LOADING + 1) * 2 + 1})
_AFTER_STEP: Final = frozenset((kind + 1) * 2 + 1 for kind in (Interval.OPTIMIZER, Interval.ZERO_GRAD))
_FEW: Final = 3
"""A process computes between its steps if it has more samples there, and none in or after a load."""


class SampledProcess(NamedTuple):
    """A training process, or one of its workers."""

    process: WatchedProcess
    worker: int = 0
    """The pid of the worker; 0 for the process itself."""

    @property
    def pid(self) -> int:
        """In the collector's pid namespace."""
        return self.worker or self.process.pid


class SampledStack(NamedTuple):
    """The Python frames of a thread at one place in its loop."""

    thread: int
    """Its id; 0 for all threads that make no probed calls."""
    place: int
    """The kind of its latest mark: (an `Interval` + 1) * 2, + 1 after its end. 0 without one."""
    code: int
    """`Code`: the owner of the code that ran; `NONE` if the thread waited."""
    state: int
    """`ThreadState`: of the wait, or of the call that ran."""
    stack: int
    """For `SampleTable.frames`."""
    worker: int = 0
    """The pid of the worker that it is of; 0 for the process itself."""


class StackCount(NamedTuple):
    """How often a stack was seen."""

    samples: int
    """On the CPU, or at the end of a wait."""
    ns: int
    """The length of the waits, or of the times between the ticks."""


@dataclass(frozen=True, slots=True)
class SamplesReading:
    """The samples of one process since the last reading."""

    process: WatchedProcess
    counts: Mapping[tuple[int, str], int]
    """By thread id and activity. The threads that make no probed calls have the id 0 together. Waits are missing."""
    seconds: float
    """The time that they took of the process."""
    stacks: Mapping[SampledStack, StackCount] = field(default_factory=dict)
    """Samples without Python frames are missing. Those of workers are here only."""
    without_frames: int = 0
    """Samples of the interpreter whose frames are not known."""


class Place(NamedTuple):
    """A Python frame."""

    code: int
    """The address of its code object."""
    instruction: int
    """Its address; in Python 3.9 the offset in bytes, in 3.10 the number of the instruction."""


class Frames(NamedTuple):
    """The Python frames of a thread, the innermost first."""

    places: tuple[Place, ...]
    is_cut: bool
    """There are more frames."""
    is_broken: bool
    """The last frame could not be read."""


@dataclass(slots=True)
class _Gathered:
    """The samples of a process since the last reading."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    stacks: dict[SampledStack, StackCount] = field(default_factory=dict)
    without_frames: int = 0
    cost_ns: int = 0


class SampleTable:
    """The samples of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._samples, self._stacks, self._rows = maps["samples"], maps["stacks"], rows
        self._gathered: defaultdict[WatchedProcess, _Gathered] = defaultdict(_Gathered)
        self._between_steps: Counter[WatchedProcess] = Counter()
        self._loading: set[WatchedProcess] = set()

    @property
    def between_steps(self) -> list[WatchedProcess]:
        """The processes that compute between their steps, and have no DataLoader: samples alone show their loads."""
        some = self._between_steps.items()
        return [process for process, count in some if count > _FEW and process not in self._loading]

    def forget(self, process: WatchedProcess) -> None:
        """The process has ended."""
        self._loading.discard(process)
        del self._between_steps[process]

    def gather(self) -> dict[SampledProcess, set[int]]:
        """Moves the samples out of the kernel. Returns the stacks of each process, for `frames`."""
        stacks: defaultdict[SampledProcess, set[int]] = defaultdict(set)
        keys, values = self._samples.items(SAMPLE_KEY, SAMPLE_COUNT, removed=True)
        for (row, generation, *fields, _), (count, cost_ns, lasted_ns) in zip(
            keys.tolist(), values.tolist(), strict=True
        ):
            process = self._rows[row]
            if process.generation == generation:
                sampled = SampledStack(*fields)
                gathered = self._gathered[process]
                if not sampled.worker:
                    gathered.cost_ns += cost_ns
                    if sampled.place in _LOADS:
                        self._loading.add(process)
                    elif sampled.place in _AFTER_STEP:
                        self._between_steps[process] += count
                    if sampled.code in _ACTIVITIES:
                        gathered.counts[sampled.thread, _ACTIVITIES[sampled.code]] += count
                if not sampled.stack:
                    gathered.without_frames += count * (sampled.code == Code.PYTHON)
                else:
                    stacks[SampledProcess(process, sampled.worker)].add(sampled.stack)
                    before = gathered.stacks.get(sampled, StackCount(0, 0))
                    gathered.stacks[sampled] = StackCount(before.samples + count, before.ns + lasted_ns)
        return stacks

    def read(self) -> list[SamplesReading]:
        """The gathered samples of every process since the last call."""
        gathered, self._gathered = self._gathered, defaultdict(_Gathered)
        return [
            SamplesReading(
                process, of.counts, (of.cost_ns + of.counts.total() * INTERRUPT_NS) / 1e9, of.stacks, of.without_frames
            )
            for process, of in gathered.items()
        ]

    def frames(self, stack: int) -> Frames | None:
        """The frames of a stack; None if the kernel has replaced it by others."""
        value = self._stacks.get(COUNT.pack(stack))
        if value is None:
            return None
        record = np.frombuffer(value, STACK)[0]
        places = tuple(Place(*place) for place in record["places"][: record["depth"]].tolist() if place[0])
        return Frames(places, bool(record["is_cut"]), bool(record["is_broken"]))
