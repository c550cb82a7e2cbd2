"""What else is known of the processes that the kernel counts: learned while they live, for the resources of their
spans."""

import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from otel_zernel.points import Attributes
from otel_zernel_receivers.ebpf.process_folder import ProcessFolder
from otel_zernel_receivers.ebpf.rows import Process, ProcessRows

_RANK_VARIABLES = {"RANK": "zernel.rank", "WORLD_SIZE": "zernel.world_size", "LOCAL_RANK": "zernel.local_rank"}
"""What torchrun tells its workers."""


class Identities:
    """The live processes' attributes."""

    def __init__(self, rows: ProcessRows, proc_root: Path = Path("/proc")) -> None:
        self._rows = rows
        self._proc_root = proc_root
        self._host = socket.gethostname()
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._known: dict[Process, Attributes] = {}

    def learn(self) -> None:
        """Looks at processes that are new, and forgets those that are gone."""
        held = self._rows.held()
        self._known = {process: self._known.get(process) or self._look(process) for process in held}

    def joined(self, process: Process, rank: int, size: int) -> None:
        """The process has made a communicator. The largest that it is in tells its rank."""
        known = self(process)
        if rank >= 0 and size > int(str(known.get("zernel.world_size", 0))):
            told: Attributes = {"zernel.rank": rank, "zernel.world_size": size, "zernel.rank.source": "nccl"}
            self._known[process] = {**known, **told}

    def __call__(self, process: Process) -> Attributes:
        """The resource attributes of a process; of one that nobody has looked at, what the kernel told."""
        return self._known.get(process) or self._told(process)

    def _told(self, process: Process) -> dict[str, str | int]:
        return {
            "process.pid": process.pid,
            "process.executable.name": self._rows.name(process),
            "host.name": self._host,
        }

    def _look(self, process: Process) -> Attributes:
        attributes = self._told(process)
        folder = ProcessFolder(self._proc_root, process.pid)
        try:
            started = self._booted + folder.start_time() / os.sysconf("SC_CLK_TCK")
            environment = folder.environment(_RANK_VARIABLES)
        except (OSError, ValueError):  # it has ended
            return attributes
        attributes["process.creation.time"] = datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds")
        attributes["process.executable.name"] = folder.executable.rpartition("/")[2] or self._rows.name(process)
        if environment.get("WORLD_SIZE", "").isdecimal():
            self._rows.set_world_size(process, int(environment["WORLD_SIZE"]))
        ranks = {_RANK_VARIABLES[name]: int(value) for name, value in environment.items() if value.isdecimal()}
        return {**attributes, **ranks, **({"zernel.rank.source": "environ"} if ranks else {})}
