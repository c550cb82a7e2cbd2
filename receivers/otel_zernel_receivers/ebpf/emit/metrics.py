"""Readings of the kernel's tables as OTLP metrics, in small batches."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel_receivers.ebpf.emit.points import BatchPoints
from otel_zernel_receivers.ebpf.emit.reading_info import MetricEncoding, ReadingInfo
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.tables import TableReadings

SERIES_PER_BATCH = 64
"""Above this number of series, a batch ends with its current process. A process without series counts as one. A batch
holds the event loop for some 40 us per series, and other tasks run between batches."""


@dataclass(frozen=True, slots=True)
class MetricEncoder:
    """Encodes readings as metrics."""

    encoding: MetricEncoding
    is_wanted: Callable[[WatchedProcess], bool]
    """Metrics of other processes are dropped."""

    def batches(self, readings: TableReadings, info: ReadingInfo) -> list[Batch]:
        """The metrics of a reading in small batches. All points of a process are in one batch; points without a process
        are in the first."""
        numbers = self._batch_numbers(readings)
        of_pid = {process.pid: process for process in numbers}
        calls = readings.calls()
        points: defaultdict[int, BatchPoints] = defaultdict(lambda: BatchPoints(self.encoding, info, calls))
        points[0].add_receiver()
        for pid, marks in info.missing_marks.items():
            process = of_pid.get(pid)
            points[numbers[process] if process else 0].add_missing_marks(pid, process, marks)
        for number, series in groupby(_numbered(readings.series, numbers), itemgetter(0)):
            points[number].add_series(of_series for _, of_series in series)
        parts: tuple[tuple[Iterable[Any], Callable[[BatchPoints, Any], None]], ...] = (
            (readings.memory, BatchPoints.add_memory),
            (readings.cpu, BatchPoints.add_cpu),
            (readings.threads, BatchPoints.add_threads),
            (readings.samples, BatchPoints.add_samples),
            (readings.takers, BatchPoints.add_takers),
            (info.limits, BatchPoints.add_limits),
            (readings.failures, BatchPoints.add_failure),
            (info.workers, BatchPoints.add_workers),
        )
        for part, add in parts:
            for number, reading in _numbered(part, numbers):
                add(points[number], reading)
        points[0].add_ends(info.ends)
        for process, lost in readings.lost_events.items():
            points[numbers.get(process, 0)].add_lost_events(process, lost)
        return [of_batch.batch() for of_batch in points.values()]

    def _batch_numbers(self, readings: TableReadings) -> dict[WatchedProcess, int]:
        """The number of the batch of each wanted process."""
        series = Counter(reading.process for reading in readings.series)
        others = (reading.process for part in (readings.memory, readings.cpu, readings.failures) for reading in part)
        processes = [process for process in dict.fromkeys((*series, *others)) if self.is_wanted(process)]
        before = accumulate((max(series[process], 1) for process in processes), initial=0)
        return {process: count // SERIES_PER_BATCH for process, count in zip(processes, before, strict=False)}


def _numbered(part: Iterable[Any], numbers: Mapping[WatchedProcess, int]) -> list[tuple[int, Any]]:
    """The readings of wanted processes with the numbers of their batches, sorted by number."""
    return sorted(
        ((numbers[reading.process], reading) for reading in part if reading.process in numbers), key=itemgetter(0)
    )
