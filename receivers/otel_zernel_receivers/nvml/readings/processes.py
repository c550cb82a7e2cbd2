"""The processes on a GPU: their memory, their utilisation, and their pids and names."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from otel_zernel.otlp.points import Attributes, AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import NvmlSeries, series
from otel_zernel_receivers.nvml.readings.polling import Measurement, Measurements
from otel_zernel_receivers.nvml.readings.samples import after_clock_reset

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""


@dataclass(frozen=True, slots=True)
class ProcessNames:
    """Maps the driver's pids to attributes, with the help of a `/proc`.

    The driver returns pids of the initial pid namespace or, in some containers, of the caller's namespace. A pid is
    therefore looked up as one of this namespace only if that is certain: the collector runs in the initial namespace,
    or the process with this pid has a GPU open.
    """

    proc: Path
    """The collector's `/proc`, or the host's."""

    def attributes(self, pid: int) -> dict[str, AttributeValue]:
        """`process.pid` in the collector's namespace, and the executable's name.

        A pid that cannot be mapped is the driver's own. Its `zernel.process.pid_namespace` is `host` or `unknown`.
        """
        folder = self.proc / str(pid)
        own = self._read_link(self.proc / "self" / "ns" / "pid")
        is_host_proc = self._read_link(self.proc / "1" / "ns" / "pid") == INITIAL_PID_NAMESPACE
        if own == INITIAL_PID_NAMESPACE or (not is_host_proc and self._uses_gpu(folder)):
            return {a.PID: pid, **self._executable(folder)}
        if is_host_proc and own and self._read_link(folder / "ns" / "pid") == own:
            return {a.PID: self._innermost_pid(folder) or pid, **self._executable(folder)}
        if is_host_proc:
            return {a.PID: pid, **self._executable(folder), semconv.PROCESS_PID_NAMESPACE: "host"}
        return {a.PID: pid, semconv.PROCESS_PID_NAMESPACE: "unknown"}

    def _executable(self, folder: Path) -> dict[str, str]:
        path = self._read_link(folder / "exe").removesuffix(" (deleted)")
        name = Path(path).name or self._status(folder).get("Name", "")
        return {a.EXECUTABLE: name} if name else {}

    def _innermost_pid(self, folder: Path) -> int | None:
        pids = self._status(folder).get("NSpid", "").split()
        return int(pids[-1]) if pids else None

    def _uses_gpu(self, folder: Path) -> bool:
        try:
            return any(self._read_link(file).startswith("/dev/nvidia") for file in (folder / "fd").iterdir())
        except OSError:
            return False

    def _status(self, folder: Path) -> dict[str, str]:
        try:
            lines = (folder / "status").read_text("utf-8", "replace").splitlines()
        except OSError:
            return {}
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def _read_link(self, path: Path) -> str:
        try:
            return os.fsencode(path.readlink()).decode("utf-8", "replace")
        except OSError:
            return ""


_OF_PROCESSES = frozenset({semconv.GPU_PROCESS_MEMORY_USAGE, semconv.GPU_PROCESS_UTILIZATION})
"""The metrics whose series end with their process."""
RUNNING_FUNCTIONS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
"""The NVML function that lists the processes of each type."""
RUNNING_VERSIONS = ("_v3", "_v2")
"""The versions of these functions. Drivers before 510 have `_v2` only.

On those drivers, pynvml's functions without a version raise an exception that is no `NVMLError`.
"""


@dataclass(slots=True)
class GpuProcesses:
    """The processes on one device."""

    names: ProcessNames
    enabled: frozenset[str]
    time_ns: Callable[[], int]
    last_us: int = 0
    """The time of the newest utilisation sample that was read, in us since 1970."""
    _sent: set[NvmlSeries] = field(default_factory=set)
    """The series of processes that have not ended."""
    _types: set[str] = field(default_factory=set)
    """The types of processes that the driver has ever listed, and those that it listed in this scrape."""
    _listed_types: set[str] = field(default_factory=set)
    _listed: set[int] = field(default_factory=set)
    """The pids that the driver listed in this scrape."""
    _attributes: dict[int, Attributes] = field(default_factory=dict)
    """By pid, for the processes in this scrape."""
    _previous_attributes: dict[int, Attributes] = field(default_factory=dict)
    """The same of the scrape before. Older ones are forgotten, because the pid may have been reused."""

    def start_scrape(self) -> None:
        """To be called at the start of each scrape."""
        self._attributes, self._previous_attributes = {}, self._attributes
        self._listed.clear()
        self._listed_types.clear()

    def ended(self, points: Iterable[NvmlSeries]) -> list[NvmlSeries]:
        """The series that a process had before and does not have in this scrape, because it has left the device or
        does not use that engine. `points` are the series of the scrape.

        If a query was skipped or failed, it is not known which processes have left: no series ends.
        """
        current = {point for point in points if point.metric in _OF_PROCESSES}
        if not self._types or self._types - self._listed_types:
            self._sent |= current
            return []
        ended, self._sent = self._sent - current, current
        return sorted(ended, key=str)

    def running(self, type_: str, function: str, nvml: Nvml, device: Handle) -> Measurements:
        """The number of processes of a type, and the memory of each. Raises `NVMLError`."""
        processes = getattr(nvml, function)(device)
        self._types.add(type_)
        self._listed_types.add(type_)
        self._listed.update(process.pid for process in processes)
        measurements: Measurements = {}
        if semconv.GPU_PROCESSES in self.enabled:
            count = series(semconv.GPU_PROCESSES, 1.0, {semconv.GPU_PROCESS_TYPE: type_})
            measurements[count] = Measurement(len(processes))
        if semconv.GPU_PROCESS_MEMORY_USAGE in self.enabled:
            for process in processes:
                if process.usedGpuMemory is not None:
                    usage = self._series(semconv.GPU_PROCESS_MEMORY_USAGE, process.pid, {})
                    measurements[usage] = Measurement(process.usedGpuMemory)
        return measurements

    def utilization(self, nvml: Nvml, device: Handle) -> Measurements:
        """The mean utilisation by each process since the last call, to be read after the processes are listed.

        The driver has samples only of processes that used the GPU. A listed process without a sample used it for no
        time. Raises `NVMLError`.
        """
        self.last_us = after_clock_reset(self.last_us, self.time_ns() // 1000)
        percents: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
        samples = self._samples(nvml, device)
        for sample in samples:
            if sample.timeStamp > self.last_us:
                for engine, percent in _engines(sample):
                    percents[sample.pid, engine].append(percent)
        self.last_us = max([self.last_us, *(sample.timeStamp for sample in samples)])
        for pid in self._listed:
            percents.setdefault((pid, "sm"), [0.0])
        return {
            self._series(semconv.GPU_PROCESS_UTILIZATION, pid, {semconv.GPU_ENGINE: engine}): Measurement(
                fmean(values) / 100
            )
            for (pid, engine), values in percents.items()
        }

    def _samples(self, nvml: Nvml, device: Handle) -> Sequence[Any]:
        try:
            samples: Sequence[Any] = nvml.nvmlDeviceGetProcessUtilization(device, self.last_us)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:  # there are no new samples
                return ()
            raise
        return samples

    def _series(self, metric: str, pid: int, attributes: Attributes) -> NvmlSeries:
        if pid not in self._attributes:
            self._attributes[pid] = self._previous_attributes.get(pid) or self.names.attributes(pid)
        return series(metric, 1.0, {**self._attributes[pid], **attributes})


def _engines(sample: object) -> Iterator[tuple[str, float]]:
    for engine, part in (("sm", "smUtil"), ("memory", "memUtil"), ("encoder", "encUtil"), ("decoder", "decUtil")):
        percent = getattr(sample, part)
        if percent <= 100:  # an unknown utilisation is out of range
            yield engine, percent
