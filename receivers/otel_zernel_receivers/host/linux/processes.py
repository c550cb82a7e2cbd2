"""The processes of the machine: their number by state, and each one by itself."""

import os
import pwd
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from otel_zernel.clock import Clock
from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.job_environment import JOB_VARIABLES, job_attributes
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.host.config import ProcessConfig, ProcessCountsConfig, selects
from otel_zernel_receivers.host.linux.cpu import TICKS
from otel_zernel_receivers.host.linux.files import FileReader, HostFiles
from otel_zernel_receivers.host.linux.memory import meminfo
from otel_zernel_receivers.host.linux.process_table import STATES, ProcessStat, ProcessTable
from otel_zernel_receivers.host.metrics import DISK_DIRECTION, FAULT_TYPE, MODE, PROCESS_STATE, SWITCH_TYPE
from otel_zernel_receivers.host.reading import Limit, ManySubjectsReader, Reading, Subject

_ENVIRONMENT = 1 << 17
"""Bytes of a process's environment that are read."""
_Identity = tuple[int, int]
"""The pid and the start of a process."""
_Program = tuple[str, int]
"""The name in the stat file, and the address of the environment. A process that executes a program changes them: also
one that was seen between its fork and its exec, with the environment of its parent."""


class ProcessesReader(FileReader[ProcessCountsConfig]):
    """Counts processes by state."""

    def __init__(self, config: ProcessCountsConfig, files: HostFiles, table: ProcessTable) -> None:
        super().__init__(config, files)
        self._table = table

    def read(self, problems: list[str]) -> Iterator[Reading]:
        counts = Counter(process.state for process in self._table.processes)
        for state in STATES:
            yield Reading("system.process.count", counts[state], ((PROCESS_STATE, state),))
        for words in self._files.lines("stat"):
            if words[:1] == ["processes"]:
                yield Reading("system.process.created", int(words[1]))


class ProcessReader(ManySubjectsReader):
    """Reads each process. Those of jobs come first if there are too many, then those with the most memory."""

    def __init__(self, config: ProcessConfig, files: HostFiles, table: ProcessTable, clock: Clock) -> None:
        super().__init__(config.enabled())
        self._config = config
        self._files = files
        self._table = table
        self._clock = clock
        self._boot_ns = 0
        self._limit = Limit()
        self._subjects: dict[_Identity, Subject] = {}
        self._programs: dict[_Identity, _Program] = {}
        """The program of each process at the time when its subject was read."""
        self._unreadable: set[_Identity] = set()
        """Processes whose files may not be read. They are a problem once, and are not tried again."""
        self._last: dict[_Identity, tuple[float, float, float]] = {}
        """Time of the last scrape (s), CPU time in user and system mode then."""

    def read_all(self, problems: list[str]) -> Iterator[tuple[Subject, list[Reading]]]:
        self._boot_ns = self._boot_ns or self._files.boot_time_ns()
        selected = self._selected(problems)
        total = meminfo(self._files)["MemTotal"]
        denied = len(self._unreadable)
        for process in selected:
            readings = [*self._of_process(process), *self._from_files(process)]
            readings.append(Reading("process.memory.utilization", process.resident / total))
            yield self._subjects[_identity(process)], readings
        if (new := len(self._unreadable) - denied) > 0 and not self._config.mute_process_all_errors:
            problems += [_refused(new)] * new

    def _selected(self, problems: list[str]) -> list[ProcessStat]:
        """The processes to report. Forgets those that have ended."""
        selected = [process for process in self._table.processes if self._is_selected(process)]
        present = {_identity(process) for process in self._table.processes}
        for gone in self._subjects.keys() - present:
            del self._subjects[gone], self._programs[gone]
            self._last.pop(gone, None)
        self._unreadable &= present
        most = self._config.max_processes
        if len(selected) > most:
            self._limit.exceeded(problems, f"{len(selected) - most} of {len(selected)} processes", "max_processes")
            selected = sorted(selected, key=self._importance, reverse=True)[:most]
        return selected

    def _is_selected(self, process: ProcessStat) -> bool:
        if process.is_kernel_thread or process.state == "defunct":
            return False
        started_ns = self._boot_ns + process.start_ticks * 1_000_000_000 // TICKS
        delay = self._config.scrape_process_delay
        if delay and self._clock.time_ns() - started_ns < delay * 1e9:
            return False
        identity, program = _identity(process), (process.name, process.environment)
        if self._programs.get(identity) != program:
            self._subjects[identity], self._programs[identity] = self._subject(process, started_ns), program
        name = str(dict(self._subjects[identity].attributes)["process.executable.name"])
        return selects(self._config.include, self._config.exclude, name)

    def _importance(self, process: ProcessStat) -> tuple[bool, float]:
        """A process that was reported counts double, so that two of one size do not take turns."""
        attributes = dict(self._subjects[_identity(process)].attributes)
        return semconv.JOB_ID in attributes, process.resident * (1 + (_identity(process) in self._last))

    def _subject(self, process: ProcessStat, started_ns: int) -> Subject:
        path = self._link(process, "exe")
        started = datetime.fromtimestamp(started_ns / 1e9, UTC)
        attributes: dict[str, AttributeValue] = {
            "host.name": self._files.host_name,
            "process.pid": process.pid,
            "process.parent_pid": process.parent,
            "process.executable.name": os.path.basename(path) or process.name,  # noqa: PTH119
            "process.executable.path": path,
            "process.owner": self._owner(process),
            "process.creation.time": started.isoformat(timespec="milliseconds"),
            **job_attributes(self._environment(process), self._files.host_name),
        }
        return Subject(tuple((name, value) for name, value in attributes.items() if value != ""), started_ns)

    def _link(self, process: ProcessStat, name: str) -> str:
        try:
            path = os.readlink(self._files.proc / str(process.pid) / name)  # noqa: PTH115
        except OSError:
            return ""
        return path.removesuffix(" (deleted)")

    def _owner(self, process: ProcessStat) -> str:
        """The name of the user; the number if the user has no name, or if it is a user of another root."""
        try:
            user = (self._files.proc / str(process.pid)).stat().st_uid
            return str(user) if self._files.is_mounted else pwd.getpwuid(user).pw_name
        except KeyError:
            return str(user)
        except OSError:
            return ""

    def _environment(self, process: ProcessStat) -> Mapping[str, str]:
        """The variables that name a job."""
        try:
            with (self._files.proc / str(process.pid) / "environ").open("rb") as file:
                pairs = file.read(_ENVIRONMENT).decode("utf-8", "replace").split("\0")
        except OSError:
            return {}
        pairs_ = (pair.partition("=") for pair in pairs)
        return {name: value for name, _, value in pairs_ if name in JOB_VARIABLES}

    def _of_process(self, process: ProcessStat) -> Iterator[Reading]:
        yield Reading("process.cpu.time", process.user, ((MODE, "user"),))
        yield Reading("process.cpu.time", process.system, ((MODE, "system"),))
        yield from self._utilization(process)
        yield Reading("process.memory.usage", process.resident)
        yield Reading("process.memory.virtual", process.virtual)
        yield Reading("process.thread.count", process.threads)
        yield Reading("process.paging.faults", process.major_faults, ((FAULT_TYPE, "major"),))
        yield Reading("process.paging.faults", process.minor_faults, ((FAULT_TYPE, "minor"),))
        started_ns = self._subjects[_identity(process)].start_ns
        yield Reading("process.uptime", max(self._clock.time_ns() - started_ns, 0) / 1e9)

    def _utilization(self, process: ProcessStat) -> Iterator[Reading]:
        now, last = self._clock.monotonic(), self._last.get(_identity(process))
        self._last[_identity(process)] = (now, process.user, process.system)
        if last and now > last[0]:
            available = (now - last[0]) * (os.cpu_count() or 1)
            yield Reading("process.cpu.utilization", (process.user - last[1]) / available, ((MODE, "user"),))
            yield Reading("process.cpu.utilization", (process.system - last[2]) / available, ((MODE, "system"),))

    def _from_files(self, process: ProcessStat) -> Iterator[Reading]:
        """The values that other users' processes keep to themselves, and expensive ones."""
        if _identity(process) in self._unreadable:
            return
        folder = f"{self._files.proc}/{process.pid}"
        try:
            if "process.disk.io" in self.enabled:
                counts = _pairs(f"{folder}/io")
                for direction in ("read", "write"):
                    yield Reading("process.disk.io", counts[f"{direction}_bytes"], ((DISK_DIRECTION, direction),))
            if "process.context_switches" in self.enabled:
                counts = _pairs(f"{folder}/status")
                for type_, name in (("voluntary", "voluntary"), ("involuntary", "nonvoluntary")):
                    yield Reading("process.context_switches", counts[f"{name}_ctxt_switches"], ((SWITCH_TYPE, type_),))
            if "process.unix.file_descriptor.count" in self.enabled:
                count = len(os.listdir(f"{folder}/fd"))  # noqa: PTH208
                yield Reading("process.unix.file_descriptor.count", count)
        except PermissionError:
            self._unreadable.add(_identity(process))
        except (OSError, KeyError):  # the process has ended
            return


def _identity(process: ProcessStat) -> _Identity:
    return process.pid, process.start_ticks


def _refused(count: int) -> str:
    counted = f"{count} process" if count == 1 else f"{count} processes"
    return f"{counted} may not be read fully: run as root, correct security profiles, or set mute_process_all_errors"


def _pairs(path: str) -> dict[str, int]:
    """The lines `name: number` of a file."""
    with open(path, "rb") as file:  # noqa: PTH123  # half of the time of pathlib
        lines = (line.partition(b":") for line in file)
        return {name.decode(): int(value) for name, _, value in lines if value.strip().isdigit()}
