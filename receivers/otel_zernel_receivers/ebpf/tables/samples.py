"""The table of samples: what the threads of training processes ran when the sampler's clock ticked."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.kernel.kernel_structs import SAMPLE_COUNT, SAMPLE_KEY, Code
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

INTERRUPT_NS: Final = 20_000
"""The clock's interrupt around each sample, on a virtual machine: `python -m benchmarks sampler_cost`."""
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


class SampleTable:
    """The samples of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._samples, self._rows = maps["samples"], rows

    def read(self) -> list[SamplesReading]:
        """The samples of every process since the last call."""
        keys, values = self._samples.drain(SAMPLE_KEY, SAMPLE_COUNT)
        counts: defaultdict[WatchedProcess, Counter[tuple[int, str]]] = defaultdict(Counter)
        cost_ns: Counter[WatchedProcess] = Counter()
        for (row, generation, tid, code), (count, ns) in zip(keys.tolist(), values.tolist(), strict=True):
            process = self._rows[row]
            if process.generation == generation:
                counts[process][tid, _ACTIVITIES[code]] += count
                cost_ns[process] += ns
        return [
            SamplesReading(process, of_process, (cost_ns[process] + of_process.total() * INTERRUPT_NS) / 1e9)
            for process, of_process in counts.items()
        ]
