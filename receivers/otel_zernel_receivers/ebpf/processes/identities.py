"""What else is known of the processes that the kernel counts, learned while they live: whether they are wanted at all,
and the attributes of their spans' resources."""

import os
import re
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from otel_zernel.otlp.points import Attributes
from otel_zernel_receivers.ebpf.processes import scanner
from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

_RANK_VARIABLES = {"RANK": "zernel.rank", "WORLD_SIZE": "zernel.world_size", "LOCAL_RANK": "zernel.local_rank"}
"""What torchrun tells its workers."""
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def host_name() -> str:
    """What the machine calls itself: the same in the resources of metrics and spans, which are joined by it."""
    return socket.gethostname()


def plain_list(devices: str) -> tuple[int, ...]:
    """The numbers of a list such as `2,3`. Empty for lists of UUIDs, and for those that name a device twice or none."""
    numbers = [number.strip() for number in devices.split(",")]
    if len(set(numbers)) < len(numbers) or not all(re.fullmatch("[0-9]{1,3}", number) for number in numbers):
        return ()
    return tuple(map(int, numbers))


class Identities:
    """The processes that have a row."""

    def __init__(self, rows: ProcessRows, selection: scanner.Selection, proc_root: Path = Path("/proc")) -> None:
        self._rows = rows
        self._selection = selection
        self._proc_root = proc_root
        self._namespace = PidNamespace(proc_root)
        self._host = host_name()
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._known: dict[WatchedProcess, Attributes | None] = {}
        self._unseen: set[WatchedProcess] = set()
        """Processes that could not be looked at: whether they are wanted is not known."""
        self._pids: dict[int, int] = {}

    def scanned(self, scan: scanner.Scan) -> None:
        """Takes from a scan under which pids /proc shows scanner, where it is another pid namespace's; and notes the
        ends of processes that nobody told us about."""
        self._pids = {process.own_pid: process.id.pid for process in scan.processes}
        for process in self._rows.held():
            if not (self._proc_root / str(self._pids.get(process.pid, process.pid))).exists():
                self._rows.end(process)

    def learn(self) -> None:
        """Looks at processes that are new, while they live, and forgets those that are gone."""
        for process in self._unseen:
            self._known.pop(process, None)
        self._unseen.clear()
        self._known = {process: self._find(process) for process in self._rows.held()}

    def wants(self, process: WatchedProcess) -> bool:
        """Whether the process is to be told of."""
        return self._find(process) is not None

    def of(self, process: WatchedProcess) -> Attributes:
        """The resource attributes of a process; of one that nobody could look at, what the kernel told."""
        return self._find(process) or self._told(process)

    def _find(self, process: WatchedProcess) -> Attributes | None:
        if process not in self._known:
            self._known[process] = self._look(process)
        return self._known[process]

    def joined(self, process: WatchedProcess, rank: int, size: int) -> None:
        """The process has made a communicator. The largest that it is in tells its rank."""
        known = self._find(process)
        if known is None:
            return
        is_inferred = known.get("zernel.rank.source") == "environ"
        if rank >= 0 and size > 0 and size + is_inferred > int(str(known.get("zernel.world_size", 0))):
            told: Attributes = {"zernel.rank": rank, "zernel.world_size": size, "zernel.rank.source": "nccl"}
            self._known[process] = {**known, **told}

    def _told(self, process: WatchedProcess) -> dict[str, str | int]:
        return {
            "process.pid": process.pid,
            "process.executable.name": self._rows.name(process),
            "host.name": self._host,
        }

    def _look(self, process: WatchedProcess) -> Attributes | None:
        """None if the process is not wanted; the kernel will then ignore it. None too if nobody can tell yet."""
        folder = ProcessFolder(self._proc_root, self._pids.get(process.pid, process.pid))
        variables = {*_RANK_VARIABLES, _VISIBLE_DEVICES, *self._selection.environment}
        try:
            found = scanner.look_at(folder, process.pid, variables)
        except (OSError, ValueError):  # mostly it has ended
            if self._selection == scanner.Selection():
                return self._told(process)
            self._unseen.add(process)
            return None
        if not self._selection.takes(found):
            self._rows.ignore(process)
            return None
        return self._describe(process, found)

    def _own_pid(self, pid: int) -> int | None:
        """The pid in the collector's namespace of a process that /proc shows; None if it has none, or has ended."""
        with suppress(OSError):
            return self._namespace.pid_of(pid) if pid else None
        return None

    def _describe(self, process: WatchedProcess, found: scanner.ScannedProcess) -> Attributes:
        attributes = self._told(process)
        started = self._booted + found.id.start_time / os.sysconf("SC_CLK_TCK")
        attributes["process.creation.time"] = datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds")
        attributes["process.executable.name"] = found.executable or found.name
        if parent := self._own_pid(found.parent):
            attributes["process.parent_pid"] = parent
        self._rows.set_visible_devices(process, plain_list(found.environment.get(_VISIBLE_DEVICES, "")))
        ranks = {
            _RANK_VARIABLES[name]: int(value)
            for name, value in found.environment.items()
            if name in _RANK_VARIABLES and value.isdecimal() and len(value) < 10  # a program may say anything
        }
        if ranks:
            self._rows.set_world_size(process, ranks.get("zernel.world_size", 0))
            attributes |= {**ranks, "zernel.rank.source": "environ"}
        return attributes
