"""Reads the counts of failed calls."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from otel_zernel_receivers.ebpf.kernel.kernel_structs import ERROR
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess


@dataclass(frozen=True, slots=True)
class FailureReading:
    """Failed calls of one process since the last reading."""

    process: WatchedProcess
    flags: int
    """The library that the code belongs to: `Flag.RUNTIME`, `Flag.DRIVER` or `Flag.NCCL`."""
    code: int
    count: int


class FailureTable:
    """The error counts of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._rows = rows
        self._errors = maps["errors"]
        self._read: dict[bytes, int] = {}

    def read(self) -> list[FailureReading]:
        """The calls that failed since the last reading, by process, library and code."""
        readings: list[FailureReading] = []
        for error, now in zip(*self._errors.items(ERROR, np.dtype("<u8")), strict=True):
            key = error.tobytes()
            if new := int(now) - self._read.get(key, 0):
                self._read[key] = int(now)
                readings.append(FailureReading(self._rows[error["row"]], int(error["flags"]), int(error["code"]), new))
        return readings

    def free(self, row: int) -> None:
        """Forgets the errors of an ended process."""
        for key in [key for key in self._read if np.frombuffer(key, ERROR)["row"][0] == row]:
            del self._read[key]
            self._errors.delete(key)
