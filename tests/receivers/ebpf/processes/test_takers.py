"""What a process that takes a CPU is to the process of a job that waits for it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from otel_zernel_libraries.training.cpu_takers import TakerKind
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from otel_zernel_receivers.ebpf.processes.scanner import Selection
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from tests.receivers.ebpf.talking import started

pytestmark = pytest.mark.skipif(
    not PidNamespace(Path("/proc")).is_initial, reason="the kernel's pids are those of the initial pid namespace"
)
_PARENT: Final = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


class Rows:
    """The rows of these processes."""

    def __init__(self, *pids: int) -> None:
        self.processes = [WatchedProcess(row, 1, pid) for row, pid in enumerate(pids)]

    def live(self) -> list[WatchedProcess]:
        return self.processes

    def name(self, process: WatchedProcess) -> str:
        return str(process.pid)


@contextmanager
def parent_and_child(**environment: str) -> Iterator[tuple[int, int]]:
    """The pids of a process and of one that it has started."""
    with started(sys.executable, "-c", _PARENT, environment=environment) as parent:
        yield parent.pid, int(parent.line())


def test_children_are_told_from_ranks_and_from_other_programs() -> None:
    rank = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "2"}
    with parent_and_child(**rank, RANK="0") as first, parent_and_child(**rank, RANK="1") as second:
        rows: Any = Rows(first[0], second[0])
        identities = Identities(rows, None, Selection())  # type: ignore[arg-type]  # has no workers
        kinds = [identities.cpu_taker(rows.live()[0], pid)[0] for pid in (first[1], *second, 1, os.getpid(), 2**30)]
    other = TakerKind.OTHER
    assert kinds == [TakerKind.CHILD, TakerKind.RANK, TakerKind.RANK, other, TakerKind.COLLECTOR, other]
