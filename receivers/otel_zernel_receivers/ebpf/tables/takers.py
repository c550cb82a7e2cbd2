"""The table of takers: which processes had the CPU while threads of a job waited for it."""

from collections import defaultdict
from collections.abc import Mapping

from otel_zernel_receivers.ebpf.kernel.kernel_structs import TAKEN_TIME, TAKER_KEY
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, TakersReading, WatchedProcess


class TakerTable:
    """The takers of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._takers, self._rows = maps["cpu_takers"], rows

    def read(self) -> list[TakersReading]:
        """The takers since the last call."""
        keys, values = self._takers.drain(TAKER_KEY, TAKEN_TIME)
        own: defaultdict[WatchedProcess, int] = defaultdict(int)
        others: defaultdict[WatchedProcess, dict[tuple[int, str], int]] = defaultdict(dict)
        for (row, generation, tgid, _), (ns, name) in zip(keys.tolist(), values.tolist(), strict=True):
            process = self._rows[row]
            if process.generation != generation:
                continue
            if tgid == self._rows.array[row]["tgid"]:
                own[process] += ns
            else:
                others[process][tgid, name.decode(errors="replace")] = ns
        return [TakersReading(process, own[process], others[process]) for process in own.keys() | others.keys()]
