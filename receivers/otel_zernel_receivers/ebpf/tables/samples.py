"""The table of samples: what the threads of training processes ran when the sampler's clock ticked."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.kernel.kernel_structs import COUNT, SAMPLE_COUNT, SAMPLE_KEY, STACK, Code
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

INTERRUPT_NS: Final = 25_000
"""Of the clock's interrupt around each sample, on a nested virtual machine: `python -m benchmarks sampler_cost`."""
_ACTIVITIES: Final = {
    Code.OPERATOR: Activity.OPERATOR,
    Code.PYTHON: Activity.PYTHON,
    Code.NATIVE: Activity.NATIVE,
}


@dataclass(frozen=True, slots=True)
class SamplesReading:
    """The samples of one process since the last reading."""

    process: WatchedProcess
    counts: Mapping[tuple[int, str], int]
    """By thread id and activity. The threads that make no probed calls have the id 0 together."""
    seconds: float
    """The time that they took of the process."""
    stacks: Mapping[int, int] = field(default_factory=dict)
    """By the stack of Python frames, for `SampleTable.frames`. Samples without Python frames are missing."""


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


class SampleTable:
    """The samples of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._samples, self._stacks, self._rows = maps["samples"], maps["stacks"], rows

    def read(self) -> list[SamplesReading]:
        """The samples of every process since the last call."""
        keys, values = self._samples.drain(SAMPLE_KEY, SAMPLE_COUNT)
        counts: defaultdict[WatchedProcess, Counter[tuple[int, str]]] = defaultdict(Counter)
        stacks: defaultdict[WatchedProcess, Counter[int]] = defaultdict(Counter)
        cost_ns: Counter[WatchedProcess] = Counter()
        for (row, generation, tid, code, stack), (count, ns) in zip(keys.tolist(), values.tolist(), strict=True):
            process = self._rows[row]
            if process.generation == generation:
                counts[process][tid, _ACTIVITIES[code]] += count
                cost_ns[process] += ns
                if stack:
                    stacks[process][stack] += count
        return [
            SamplesReading(
                process, of_process, (cost_ns[process] + of_process.total() * INTERRUPT_NS) / 1e9, stacks[process]
            )
            for process, of_process in counts.items()
        ]

    def frames(self, stack: int) -> Frames | None:
        """The frames of a stack; None if the kernel has replaced it by others."""
        value = self._stacks.get(COUNT.pack(stack))
        if value is None:
            return None
        found = np.frombuffer(value, STACK)[0]
        places = tuple(Place(*place) for place in found["places"][: found["depth"]].tolist() if place[0])
        return Frames(places, bool(found["is_cut"]), bool(found["is_broken"]))
