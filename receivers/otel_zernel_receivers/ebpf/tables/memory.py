"""Reads the GPU memory that processes hold on each device."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.kernel.kernel_structs import DEVICES, MEMORY, UNKNOWN_DEVICE
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The memory of one process on one device, and its allocations and frees since the last reading."""

    process: WatchedProcess
    device: int | None
    """The device's number on the machine, if the process's environment gives it, else the process's own number.

    None if the device was selected before the probes were attached.
    """
    used: int
    """Bytes allocated and not freed since the probes were attached."""
    peak: int
    """The maximum of `used`, bytes."""
    allocations: int
    frees: int


class MemoryTable:
    """The memory of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._rows = rows
        self._memory: NDArray[np.void] = maps["memory"].array(MEMORY).reshape(-1, DEVICES)
        self._read = np.zeros_like(self._memory)

    def read(self) -> list[MemoryReading]:
        """The memory of every process on every device that it has used."""
        touched = (self._memory["allocations"] != 0) | (self._memory["frees"] != 0)
        return [self._reading(row, device) for row, device in np.argwhere(touched).tolist()]

    def free(self, row: int) -> None:
        """Forgets the memory of an ended process, which the driver has freed."""
        self._memory[row] = self._read[row] = np.zeros((), MEMORY)

    def _reading(self, row: int, device: int) -> MemoryReading:
        now, before = self._memory[row, device].copy(), self._read[row, device].copy()
        self._read[row, device] = now
        process = self._rows[row]
        return MemoryReading(
            process=process,
            device=None if device == UNKNOWN_DEVICE else self._rows.device(process, device),
            used=int(now["used"]),
            peak=int(now["peak"]),
            allocations=int(now["allocations"] - before["allocations"]),
            frees=int(now["frees"] - before["frees"]),
        )
