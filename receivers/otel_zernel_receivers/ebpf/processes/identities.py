"""The processes that the kernel counts: whether the configuration selects them, and the attributes of their resources.

Both are read from /proc while a process lives, and kept until the kernel's table has given its row back.
"""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from otel_zernel.otlp.points import Attributes
from otel_zernel_libraries.job_environment import (
    JOB_VARIABLES,
    RANK_VARIABLES,
    host_name,
    job_id,
    job_run,
    rank_attributes,
    service_name,
)
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.cpu_takers import TakerKind
from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.processes.scanner import Scan, ScannedProcess, Selection, read_process
from otel_zernel_receivers.ebpf.processes.workers import descends_from, is_worker
from otel_zernel_receivers.ebpf.tables.process_table import (
    LimitsReading,
    ProcessRows,
    Throttling,
    WatchedProcess,
    WorkerTable,
)

_FOLDERS: Final = {
    "cpu": ("cpu/{}", "cpu,cpuacct/{}", "{}", "unified/{}"),
    "memory": ("memory/{}", "{}", "unified/{}"),
}
"""Of a control group below /sys/fs/cgroup: in cgroup v1 under its names, in v2, and in v2 beside v1."""
_UNLIMITED: Final = 1 << 60
"""Bytes. The limit of cgroup v1 is a larger number if there is none."""


class Limits:
    """Reads the limits of processes."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root
        self._before: dict[WatchedProcess, Throttling] = {}

    def read(self, folders: Iterable[tuple[WatchedProcess, ProcessFolder]]) -> list[LimitsReading]:
        """The limits of processes, with their folders in /proc. Those that have ended are left out."""
        before, self._before = self._before, {}
        limits = []
        for process, folder in folders:
            with suppress(OSError, ValueError):
                limits.append(self._read(process, folder, before))
        return limits

    def _read(
        self, process: WatchedProcess, folder: ProcessFolder, before: dict[WatchedProcess, Throttling]
    ) -> LimitsReading:
        groups = list(self._groups(folder.cgroup("cpu")))
        cpus = min([float(folder.cpus_allowed()), *(quota for group in groups if (quota := _quota(group)))])
        throttling = _throttling(groups)
        if throttling is not None:
            self._before[process] = throttling
            throttling = throttling.since(before.get(process, throttling))
        left = [room for group in self._groups(folder.cgroup("memory"), "memory") if (room := _room(group)) is not None]
        memory = folder.anonymous_memory()
        return LimitsReading(process, cpus, folder.runnable_threads(), throttling, memory, min(left, default=None))

    def _groups(self, path: str, controller: str = "cpu") -> Iterator[Path]:
        """The folders of a group and of those around it: a limit of each of them stops the process."""
        inner = PurePosixPath(path.strip("/"))
        for pattern in _FOLDERS[controller] if path else ():
            if (self._root / pattern.format(inner) / f"{controller}.stat").exists():
                yield from (self._root / pattern.format(parent) for parent in (inner, *inner.parents))
                return


def _throttling(groups: Iterable[Path]) -> Throttling | None:
    """The sum of the counters; None if there are none. The pressure of the innermost group includes all waits."""
    total: Throttling | None = None
    for group in groups:
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (group / "cpu.stat").read_text().splitlines())
            counts = {words[0]: int(words[1]) for words in lines if len(words) == 2}
            throttled = counts.get("throttled_time", 0) / 1e9 + counts.get("throttled_usec", 0) / 1e6  # v1, and v2
            before = total or Throttling(pressure_s=_pressure(group))
            total = replace(
                before,
                throttled_s=before.throttled_s + throttled,
                periods=before.periods + counts.get("nr_periods", 0),
                throttled_periods=before.throttled_periods + counts.get("nr_throttled", 0),
            )
    return total


def _pressure(group: Path) -> float | None:
    with suppress(OSError, ValueError, IndexError):
        some = (group / "cpu.pressure").read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return None


def _quota(group: Path) -> float | None:
    """The CPUs that the quota of a group allows; None if it has none."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text())
        return quota_us / int((group / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None
    return None


def _room(group: Path) -> int | None:
    """The bytes that the limit of a group leaves; None if it has none. Files that were read once give way."""
    for limit_file, usage_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):
            limit, used = (int((group / name).read_text()) for name in (limit_file, usage_file))
            lines = (line.split() for line in (group / "memory.stat").read_text().splitlines())
            given = next((int(words[1]) for words in lines if words[0] == cache), 0)
            return max(limit - used + given, 0) if limit < _UNLIMITED else None
    return None


_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_GENERATIONS = 4
"""From a process to one that has started it: a worker of a forkserver is a grandchild."""
_MOST_REMEMBERED = 1024
"""Processes. The machine has fewer training processes at a time."""


def plain_list(devices: str) -> tuple[int, ...]:
    """The numbers of a list such as `2,3`. Empty for UUIDs, and where a number is missing or repeated."""
    numbers = [number.strip() for number in devices.split(",")]
    if len(set(numbers)) < len(numbers) or not all(re.fullmatch("[0-9]{1,3}", number) for number in numbers):
        return ()
    return tuple(map(int, numbers))


@dataclass(frozen=True, slots=True)
class _Identity:
    """The facts that /proc gives about one process."""

    attributes: Attributes
    is_selected: bool = True
    is_final: bool = True
    """False if /proc could not be read, so that `is_selected` is not known yet."""
    visible_devices: tuple[int, ...] = ()
    world_size: int = 0
    """Ranks of the process's job; 0 if its environment does not give it."""
    memory_cgroup: str = ""
    """The path of the control group that limits its memory; empty if not known."""


class Identities:
    """The identities of the processes that have a row in the kernel's table."""

    def __init__(
        self, rows: ProcessRows, workers: WorkerTable, selection: Selection, proc_root: Path = Path("/proc")
    ) -> None:
        self._rows = rows
        self._workers = workers
        self._selection = selection
        self._proc_root = proc_root
        self._namespace = PidNamespace(proc_root)
        self._limits = Limits()
        self._host = host_name()
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._known: dict[WatchedProcess, _Identity] = {}
        self._unwritten: dict[WatchedProcess, _Identity] = {}
        """Identities that `learn` still has to write into the kernel's table."""
        self._examined: set[WatchedProcess] = set()
        """The processes that have not looked like workers since the last scan."""
        self._pids: dict[int, int] = {}
        """Pids in the scanned /proc by pid in the collector's pid namespace, where a scan found the process."""
        self._remembered: dict[int, ScannedProcess] = {}
        """Facts about processes that scans found, by pid in the collector's pid namespace. Their forks may live on."""

    def note_scan(self, scan: Scan) -> None:
        """Remembers the pids that the scanned /proc uses, and ends the rows of processes that /proc does not show."""
        self._pids = {process.own_pid: process.id.pid for process in scan.processes}
        for pid in self._pids:
            self._remembered.pop(pid, None)
            with suppress(OSError, ValueError):
                self._remembered[pid] = self._facts(pid)
        for pid in list(self._remembered)[:-_MOST_REMEMBERED]:
            del self._remembered[pid]
        for process in self._rows.held():
            if not self._exists(process.pid):
                self._rows.end(process)
        self._workers.forget(self._exists)
        self._examined = set()

    def learn(self) -> None:
        """Reads the identities of new processes and writes them into the kernel's table.

        The table then ignores processes that are not selected, and workers of processes that train have no row there.
        Forgets processes that have no row any more. Processes that could not be read are read again. Call it before
        each reading of the tables.
        """
        final = {process: identity for process, identity in self._known.items() if identity.is_final}
        self._known = {process: final.get(process) or self._read(process) for process in self._rows.held()}
        for process, identity in self._unwritten.items():
            self._write(process, identity)
        self._unwritten.clear()
        for process in list(self._known):
            self._set_rank(process, *self._rows.group(process), "process_group")
        self._find_workers()

    def is_selected(self, process: WatchedProcess) -> bool:
        """Whether the receiver reports the process. False as long as that is not known."""
        return self._identity(process).is_selected

    def is_identified(self, process: WatchedProcess) -> bool:
        """Whether it is known that the process is selected, or that it is not."""
        return self._identity(process).is_final

    def trains(self, process: WatchedProcess) -> bool:
        """Whether the process trains, or has a rank and will."""
        return semconv.RANK in self.attributes_of(process) or self._rows.trains(process)

    def without_workers(self, pids: Collection[int]) -> set[int]:
        """Those of the pids that are no part of another training process: no worker, and no server that it forked."""
        known = self._workers.pids() if pids else ()
        training = self._training() if pids else {}
        return {pid for pid in pids if pid not in known and not self._served_by(pid, training)}

    def knows(self, process: WatchedProcess) -> bool:
        """Whether the process still has a row in the kernel's table."""
        return process in self._known

    def origin(self, process: WatchedProcess) -> tuple[str, int, str]:
        """The host, the pid and the creation time (empty if not known), which identify the process forever."""
        created = self.attributes_of(process).get("process.creation.time", "")
        return self._host, process.pid, str(created)

    def memory_cgroups(self) -> set[str]:
        """The control groups that limit the memory of the processes, as paths of /proc/PID/cgroup."""
        return {identity.memory_cgroup for identity in self._known.values()} - {""}

    def memory_cgroup(self, process: WatchedProcess) -> str:
        """The one of a process; empty if it is not known."""
        return self._identity(process).memory_cgroup

    def cpu_taker(self, process: WatchedProcess, pid: int) -> tuple[TakerKind, str]:
        """What the process with this pid in the initial pid namespace is to another one that waits for a CPU, and the
        control group that limits its CPU time (empty if it is not known)."""
        if not self._namespace.is_initial:
            return TakerKind.OTHER, ""
        if pid == os.getpid():
            return TakerKind.COLLECTOR, ""
        with suppress(OSError, ValueError):
            return self._relation(process, pid), self.folder(pid).cgroup("cpu")
        return TakerKind.OTHER, ""

    def _relation(self, process: WatchedProcess, pid: int) -> TakerKind:
        """Raises OSError or ValueError if the process with this pid has ended."""
        watched = {process_.pid: process_ for process_ in self._rows.live()}
        for _ in range(_GENERATIONS):
            if pid == process.pid:
                return TakerKind.CHILD
            if pid in watched and self._are_of_one_job(process, watched[pid]):
                return TakerKind.RANK
            pid = self.folder(pid).parent()
        return TakerKind.OTHER

    def _are_of_one_job(self, *processes: WatchedProcess) -> bool:
        """Whether both have the id of one job, or are ranks that the same process has started."""
        (job, launcher), (of_other, other_launcher) = (
            (attributes.get(semconv.JOB_ID), semconv.RANK in attributes and attributes.get("process.parent_pid"))
            for attributes in map(self.attributes_of, processes)
        )
        return bool((job and job == of_other) or (launcher and launcher == other_launcher))

    def limits(self) -> list[LimitsReading]:
        """What limits the CPU time of each process that the kernel counts."""
        return self._limits.read((process, self.folder(process.pid)) for process in self._rows.live())

    def folder(self, pid: int) -> ProcessFolder:
        """The folder in /proc of a process of the collector's pid namespace."""
        return ProcessFolder(self._proc_root, self._pids.get(pid, pid))

    def attributes_of(self, process: WatchedProcess) -> Attributes:
        """The resource attributes of a process; if /proc could not be read, the attributes that the kernel gives."""
        return self._identity(process).attributes

    def set_rank(self, process: WatchedProcess, rank: int, size: int) -> None:
        """Notes the process's `rank` in a communicator of `size` ranks. The largest communicator gives the job's rank.

        A communicator replaces the rank of the environment if it is at least as large as that world size. A rank below
        0 or a size of 0 is unknown and changes nothing.
        """
        self._set_rank(process, rank, size, "nccl")

    def _set_rank(self, process: WatchedProcess, rank: int, size: int, source: str) -> None:
        """The same of a communicator or of a process group. A group of the environment's size has the same ranks."""
        if rank < 0 or size <= 0:
            return
        identity = self._identity(process)
        if not identity.is_selected:
            return
        attributes = identity.attributes
        is_inferred = source == "nccl" and attributes.get(semconv.RANK_SOURCE) != "nccl"
        if size + is_inferred > int(str(attributes.get(semconv.WORLD_SIZE, 0))):
            joined: Attributes = {semconv.RANK: rank, semconv.WORLD_SIZE: size, semconv.RANK_SOURCE: source}
            self._known[process] = replace(identity, attributes={**attributes, **joined})

    def _identity(self, process: WatchedProcess) -> _Identity:
        if process not in self._known:
            self._known[process] = self._read(process)
        return self._known[process]

    def _read(self, process: WatchedProcess) -> _Identity:
        find = self._find(process)
        if not find:
            selects_all = self._selection == Selection()
            return _Identity(self._kernel_attributes(process), selects_all, is_final=selects_all)
        identity = self._describe(process, find)
        with suppress(OSError):
            identity = replace(identity, memory_cgroup=self.folder(find.own_pid).cgroup("memory"))
        self._unwritten[process] = identity
        return identity

    def _find(self, process: WatchedProcess) -> ScannedProcess | None:
        """The facts about a process. If it has ended: the facts about the process whose program it ran.

        The program's first process and its forks have the same executable, environment and, in general, control group.
        """
        with suppress(OSError, ValueError):
            return self._facts(process.pid)
        origin = self._rows.origin(process)
        facts = self._remembered.get(origin)
        with suppress(OSError, ValueError):
            facts = self._facts(origin) if origin else None
        return replace(facts, name=self._rows.name(process)) if facts else None

    def _facts(self, pid: int) -> ScannedProcess:
        """The facts that identities need about a process. Raises OSError or ValueError if it has ended."""
        variables = {*RANK_VARIABLES, _VISIBLE_DEVICES, *JOB_VARIABLES, *self._selection.environment}
        return read_process(self.folder(pid), pid, variables)

    def _write(self, process: WatchedProcess, identity: _Identity) -> None:
        if not identity.is_selected:
            self._rows.ignore(process)
            return
        self._rows.describe(process, identity.world_size, identity.visible_devices)

    def _describe(self, process: WatchedProcess, scanned: ScannedProcess) -> _Identity:
        attributes = self._kernel_attributes(process)
        if not self._selection.selects(scanned):
            return _Identity(attributes, is_selected=False)
        if is_own := scanned.own_pid == process.pid:
            started = self._booted + scanned.id.start_time / os.sysconf("SC_CLK_TCK")
            created = datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds")
            attributes["process.creation.time"] = created
        attributes["process.executable.name"] = name = scanned.executable or scanned.name
        attributes["service.name"] = service_name(scanned.environment, name)
        if scanned.program:
            attributes[semconv.PROGRAM] = scanned.program
        if job := job_id(scanned.environment, self._host):
            attributes[semconv.JOB_ID] = job
        if run := job_run(scanned.environment):
            attributes[semconv.JOB_RUN] = run
        if is_own and (parent := self._own_pid(scanned.parent)):
            attributes["process.parent_pid"] = parent
        if ranks := rank_attributes(scanned.environment):
            attributes |= {**ranks, semconv.RANK_SOURCE: "environ"}
        devices = plain_list(scanned.environment.get(_VISIBLE_DEVICES, ""))
        return _Identity(attributes, visible_devices=devices, world_size=ranks.get(semconv.WORLD_SIZE, 0))

    def _kernel_attributes(self, process: WatchedProcess) -> dict[str, str | int]:
        """The attributes that need no /proc."""
        name = self._rows.name(process)
        return {
            "process.pid": process.pid,
            "process.executable.name": name,
            "host.name": self._host,
            "service.name": service_name({}, name),
            "service.instance.id": f"{self._host}/{process.pid}",
        }

    def _exists(self, pid: int) -> bool:
        return (self._proc_root / str(self._pids.get(pid, pid))).exists()

    def _find_workers(self) -> None:
        """Takes away the rows of workers that the kernel has not recognized."""
        selected = {process for process, identity in self._known.items() if identity.is_selected}
        others = {process for process in self._rows.live(trains=False) if process in selected}
        training = self._training() if others else {}
        for process in others - self._examined if training else ():
            served = self._served_by(process.pid, training)
            if served and self._is_worker(process.pid):
                self._workers.serve(process, served)
                self._known[process] = replace(self._known[process], is_selected=False)
        self._examined = others if training else set()

    def _is_worker(self, pid: int) -> bool:
        with suppress(OSError, ValueError):
            return is_worker(self.folder(pid))
        return False

    def _training(self) -> dict[int, WatchedProcess]:
        """The processes that train, by their pids in the scanned /proc."""
        return {self.folder(process.pid).pid: process for process in self._rows.live(trains=True)}

    def _served_by(self, pid: int, training: Mapping[int, WatchedProcess]) -> WatchedProcess | None:
        return descends_from(self.folder(pid), training, partial(ProcessFolder, self._proc_root))

    def _own_pid(self, pid: int) -> int | None:
        """The pid in the collector's namespace of a process of the scanned /proc; None if it has none, or has ended."""
        with suppress(OSError):
            return self._namespace.pid_of(pid) if pid else None
        return None
