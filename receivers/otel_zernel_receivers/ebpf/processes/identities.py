"""The processes that the kernel counts: whether the configuration selects them, and the attributes of their resources.

Both are read from /proc while a process lives, and kept until the kernel's table has given its row back.
"""

import os
import re
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from otel_zernel.otlp.points import Attributes
from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.processes.scanner import Scan, ScannedProcess, Selection, read_process
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

_RANK_VARIABLES = {"RANK": "zernel.rank", "WORLD_SIZE": "zernel.world_size", "LOCAL_RANK": "zernel.local_rank"}
"""The variables that torchrun sets for its workers."""
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def host_name() -> str:
    """The machine's host name. The resources of metrics and of spans both carry it, and backends join them by it."""
    return socket.gethostname()


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


class Identities:
    """The identities of the processes that have a row in the kernel's table."""

    def __init__(self, rows: ProcessRows, selection: Selection, proc_root: Path = Path("/proc")) -> None:
        self._rows = rows
        self._selection = selection
        self._proc_root = proc_root
        self._namespace = PidNamespace(proc_root)
        self._host = host_name()
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._known: dict[WatchedProcess, _Identity] = {}
        self._unwritten: dict[WatchedProcess, _Identity] = {}
        """Identities that `learn` still has to write into the kernel's table."""
        self._pids: dict[int, int] = {}
        """Pids in the scanned /proc by pid in the collector's pid namespace, where a scan found the process."""

    def note_scan(self, scan: Scan) -> None:
        """Remembers the pids that the scanned /proc uses, and ends the rows of processes that /proc does not show."""
        self._pids = {process.own_pid: process.id.pid for process in scan.processes}
        for process in self._rows.held():
            if not (self._proc_root / str(self._pids.get(process.pid, process.pid))).exists():
                self._rows.end(process)

    def learn(self) -> None:
        """Reads the identities of new processes and writes them into the kernel's table.

        The table then ignores processes that are not selected. Forgets processes that have no row any more. Processes
        that could not be read are read again. Call it before each reading of the tables.
        """
        final = {process: identity for process, identity in self._known.items() if identity.is_final}
        self._known = {process: final.get(process) or self._read(process) for process in self._rows.held()}
        for process, identity in self._unwritten.items():
            self._write(process, identity)
        self._unwritten.clear()

    def is_selected(self, process: WatchedProcess) -> bool:
        """Whether the receiver reports the process. False as long as that is not known."""
        return self._identity(process).is_selected

    def attributes_of(self, process: WatchedProcess) -> Attributes:
        """The resource attributes of a process; if /proc could not be read, the attributes that the kernel gives."""
        return self._identity(process).attributes

    def set_rank(self, process: WatchedProcess, rank: int, size: int) -> None:
        """Notes the process's `rank` in a communicator of `size` ranks. The largest communicator gives the job's rank.

        A communicator replaces the rank of the environment if it is at least as large as that world size. A rank below
        0 or a size of 0 is unknown and changes nothing.
        """
        identity = self._identity(process)
        if not identity.is_selected or rank < 0 or size <= 0:
            return
        attributes = identity.attributes
        is_inferred = attributes.get("zernel.rank.source") == "environ"
        if size + is_inferred > int(str(attributes.get("zernel.world_size", 0))):
            joined: Attributes = {"zernel.rank": rank, "zernel.world_size": size, "zernel.rank.source": "nccl"}
            self._known[process] = replace(identity, attributes={**attributes, **joined})

    def _identity(self, process: WatchedProcess) -> _Identity:
        if process not in self._known:
            self._known[process] = self._read(process)
        return self._known[process]

    def _read(self, process: WatchedProcess) -> _Identity:
        folder = ProcessFolder(self._proc_root, self._pids.get(process.pid, process.pid))
        variables = {*_RANK_VARIABLES, _VISIBLE_DEVICES, *self._selection.environment}
        try:
            found = read_process(folder, process.pid, variables)
        except (OSError, ValueError):  # usually the process has ended
            selects_all = self._selection == Selection()
            return _Identity(self._kernel_attributes(process), selects_all, is_final=selects_all)
        identity = self._describe(process, found)
        self._unwritten[process] = identity
        return identity

    def _write(self, process: WatchedProcess, identity: _Identity) -> None:
        if not identity.is_selected:
            self._rows.ignore(process)
            return
        self._rows.set_visible_devices(process, identity.visible_devices)
        self._rows.set_world_size(process, identity.world_size)

    def _describe(self, process: WatchedProcess, found: ScannedProcess) -> _Identity:
        attributes = self._kernel_attributes(process)
        if not self._selection.selects(found):
            return _Identity(attributes, is_selected=False)
        started = self._booted + found.id.start_time / os.sysconf("SC_CLK_TCK")
        attributes["process.creation.time"] = datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds")
        attributes["process.executable.name"] = found.executable or found.name
        if parent := self._own_pid(found.parent):
            attributes["process.parent_pid"] = parent
        ranks = {
            _RANK_VARIABLES[name]: int(value)
            for name, value in found.environment.items()
            if name in _RANK_VARIABLES and value.isdecimal() and len(value) < 10  # a program may set any text
        }
        if ranks:
            attributes |= {**ranks, "zernel.rank.source": "environ"}
        devices = plain_list(found.environment.get(_VISIBLE_DEVICES, ""))
        return _Identity(attributes, visible_devices=devices, world_size=ranks.get("zernel.world_size", 0))

    def _kernel_attributes(self, process: WatchedProcess) -> dict[str, str | int]:
        """The attributes that need no /proc."""
        return {
            "process.pid": process.pid,
            "process.executable.name": self._rows.name(process),
            "host.name": self._host,
        }

    def _own_pid(self, pid: int) -> int | None:
        """The pid in the collector's namespace of a process of the scanned /proc; None if it has none, or has ended."""
        with suppress(OSError):
            return self._namespace.pid_of(pid) if pid else None
        return None
