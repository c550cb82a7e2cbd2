"""The processes on a GPU: who they are, as far as that can be known."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import Stream, stream
from otel_zernel_receivers.nvml.readings.polling import Reading, Readings
from otel_zernel_receivers.nvml.readings.samples import not_ahead

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""

Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Names:
    """Pids as the driver gives them, and what a `/proc` says about them.

    Drivers answer with pids of the initial namespace, or (some, in containers) of the caller's. So a number is taken
    for a process of ours only if it must be one: we are in the initial namespace, or that process has a GPU open.
    """

    proc: Path
    """Ours, or the host's."""

    def attributes(self, pid: int) -> dict[str, AttributeValue]:
        """`process.pid` in our namespace and the executable's name. A pid that could not be mapped is the driver's
        own, and says so: its namespace is `host`, or `unknown`."""
        folder = self.proc / str(pid)
        ours = self._link(self.proc / "self" / "ns" / "pid")
        initial = self._link(self.proc / "1" / "ns" / "pid") == INITIAL_PID_NAMESPACE
        if ours == INITIAL_PID_NAMESPACE or (not initial and self._uses_gpu(folder)):
            return {m.PID: pid, **self._executable(folder)}
        if initial and ours and self._link(folder / "ns" / "pid") == ours:
            return {m.PID: self._innermost(folder) or pid, **self._executable(folder)}
        if initial:
            return {m.PID: pid, **self._executable(folder), m.PID_NAMESPACE: "host"}
        return {m.PID: pid, m.PID_NAMESPACE: "unknown"}

    def _executable(self, folder: Path) -> dict[str, str]:
        path = self._link(folder / "exe").removesuffix(" (deleted)")
        name = Path(path).name or self._status(folder).get("Name", "")
        return {m.EXECUTABLE: name} if name else {}

    def _innermost(self, folder: Path) -> int | None:
        pids = self._status(folder).get("NSpid", "").split()
        return int(pids[-1]) if pids else None

    def _uses_gpu(self, folder: Path) -> bool:
        try:
            return any(self._link(one).startswith("/dev/nvidia") for one in (folder / "fd").iterdir())
        except OSError:
            return False

    def _status(self, folder: Path) -> dict[str, str]:
        try:
            lines = (folder / "status").read_text("utf-8", "replace").splitlines()
        except OSError:
            return {}
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def _link(self, path: Path) -> str:
        try:
            return os.fsencode(path.readlink()).decode("utf-8", "replace")
        except OSError:
            return ""


RUNNING = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
"""NVML's function for each type of process."""
VERSIONS = ("_v3", "_v2")
"""Of these functions; drivers before 510 know the second only. There, pynvml's functions without a version raise what
is no `NVMLError`."""


@dataclass(slots=True)
class Processes:
    """The processes on one device."""

    names: Names
    enabled: frozenset[str]
    time_ns: Callable[[], int]
    last_us: int = 0
    """The time of the newest sample of processes' utilisation."""
    _known: dict[int, Attributes] = field(default_factory=dict)
    """The attributes of the pids met in this scrape."""
    _before: dict[int, Attributes] = field(default_factory=dict)
    """And in the one before. Those of older ones are forgotten: a pid may be another process by now."""

    def begin(self) -> None:
        """Begins a scrape."""
        self._known, self._before = {}, self._known

    def running(self, type_: str, function: str, nvml: Nvml, device: Handle) -> Readings:
        """What each of a type holds, and how many there are. Raises `NVMLError`."""
        listed = getattr(nvml, function)(device)
        readings: Readings = {}
        if "zernel.gpu.processes" in self.enabled:
            readings[stream("zernel.gpu.processes", 1.0, {m.PROCESS_TYPE: type_})] = Reading(len(listed))
        if "zernel.gpu.process.memory.usage" in self.enabled:
            for one in listed:
                if one.usedGpuMemory is not None:
                    held = self._stream("zernel.gpu.process.memory.usage", one.pid, {})
                    readings[held] = Reading(one.usedGpuMemory)
        return readings

    def utilization(self, nvml: Nvml, device: Handle) -> Readings:
        """The mean utilisation of each since the last call. Raises `NVMLError`."""
        self.last_us = not_ahead(self.last_us, self.time_ns() // 1000)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device, self.last_us)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:  # nothing new
                return {}
            raise
        by_series: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
        for sample in samples:
            if sample.timeStamp > self.last_us:
                for engine, percent in _engines(sample):
                    by_series[sample.pid, engine].append(percent)
        self.last_us = max([self.last_us, *(sample.timeStamp for sample in samples)])
        return {
            self._stream("zernel.gpu.process.utilization", pid, {m.ENGINE: engine}): Reading(fmean(percents) / 100)
            for (pid, engine), percents in by_series.items()
        }

    def _stream(self, metric: str, pid: int, attributes: Attributes) -> Stream:
        if pid not in self._known:
            self._known[pid] = self._before.get(pid) or self.names.attributes(pid)
        return stream(metric, 1.0, {**self._known[pid], **attributes})


def _engines(sample: object) -> Iterator[tuple[str, float]]:
    for engine, part in (("sm", "smUtil"), ("memory", "memUtil"), ("encoder", "encUtil"), ("decoder", "decUtil")):
        percent = getattr(sample, part)
        if percent <= 100:  # what an engine cannot tell is out of range
            yield engine, percent
