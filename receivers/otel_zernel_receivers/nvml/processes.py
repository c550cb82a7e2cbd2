"""The processes on a GPU: who they are, as far as that can be known."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from otel_zernel.points import AttributeValue
from otel_zernel_receivers.nvml import metrics as m
from otel_zernel_receivers.nvml.asking import Reading, Readings
from otel_zernel_receivers.nvml.library import Handle, Library
from otel_zernel_receivers.nvml.queries import Stream, stream

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
            return str(path.readlink())
        except OSError:
            return ""


@dataclass(slots=True)
class Processes:
    """The processes on one device."""

    names: Names
    enabled: frozenset[str]
    last_us: int = 0
    """The time of the newest sample of processes' utilisation."""
    known: dict[int, dict[str, AttributeValue]] = field(default_factory=dict)
    """The attributes of the pids that were there at the last scrape."""

    def memory(self, library: Library, device: Handle) -> Readings:
        """What each holds, and how many there are. Raises `NVMLError`."""
        compute = library.nvml.nvmlDeviceGetComputeRunningProcesses(device)
        readings = self._held(compute, "compute")
        pids = {one.pid for one in compute}
        try:
            graphics = library.nvml.nvmlDeviceGetGraphicsRunningProcesses(device)
        except library.nvml.NVMLError as error:  # MIG instances and boards without graphics
            library.check(error.value)
        else:
            readings |= self._held([one for one in graphics if one.pid not in pids], "graphics")
            pids |= {one.pid for one in graphics}
        self.known = {pid: attributes for pid, attributes in self.known.items() if pid in pids}
        return readings

    def utilization(self, library: Library, device: Handle) -> Readings:
        """The mean utilisation of each since the last call. Raises `NVMLError`."""
        nvml = library.nvml
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

    def _held(self, processes: list[object], type_: str) -> Readings:
        readings: Readings = {}
        if "zernel.gpu.processes" in self.enabled:
            readings[stream("zernel.gpu.processes", 1.0, {m.PROCESS_TYPE: type_})] = Reading(len(processes))
        if "zernel.gpu.process.memory.usage" in self.enabled:
            for one in processes:
                held = one.usedGpuMemory  # type: ignore[attr-defined]  # pynvml's own class of no fixed fields
                if held is not None:
                    pid = one.pid  # type: ignore[attr-defined]
                    readings[self._stream("zernel.gpu.process.memory.usage", pid, {})] = Reading(held)
        return readings

    def _stream(self, metric: str, pid: int, attributes: Attributes) -> Stream:
        if pid not in self.known:
            self.known[pid] = self.names.attributes(pid)
        return stream(metric, 1.0, {**self.known[pid], **attributes})


def _engines(sample: object) -> Iterator[tuple[str, float]]:
    for engine, part in (("sm", "smUtil"), ("memory", "memUtil"), ("encoder", "encUtil"), ("decoder", "decUtil")):
        percent = getattr(sample, part)
        if percent <= 100:  # what an engine cannot tell is out of range
            yield engine, percent
