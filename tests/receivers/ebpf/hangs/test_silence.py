"""Ranks of real jobs that hang: the session says what each does, attached before the hang or after it."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import ProcessThreads
from otel_zernel_receivers.ebpf.hangs.silence import AFTER_ATTACHING, AFTER_MARK, SilentProcesses
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.tables.process_table import NO_ROW, WatchedProcess
from tests.receivers.ebpf.hangs.jobs import PROGRAM, hanging_job
from tests.receivers.ebpf.jobs.pytorch.torches import OLD, OWN, python_of
from tests.receivers.ebpf.watching import Watch

LINES = PROGRAM.read_text("utf-8").splitlines()


def place(text: str) -> tuple[str, int]:
    """The file, and the only line with this text."""
    (line,) = (number for number, line in enumerate(LINES, 1) if text in line)
    return str(PROGRAM), line


def deepest(threads: ProcessThreads) -> tuple[str, int]:
    """The innermost line of the main thread that is in the program."""
    (main,) = (thread for thread in threads.threads if thread.is_main)
    return next((line.file, line.line) for line in main.lines if line.file == str(PROGRAM))


def stuck(watch: Watch, kind: str, folder: Path, *, is_attached_before: bool) -> list[ProcessThreads]:
    """What the ranks of a job do that hangs."""
    with hanging_job(kind, folder) as job:
        if not is_attached_before:
            job.hang()
        watch.attach()
        if is_attached_before:
            watch.read()
            job.hang()
        return job.threads(watch)


WHEN = pytest.mark.parametrize(
    "is_attached_before", [pytest.param(True, id="attached before"), pytest.param(False, id="attached after")]
)


@WHEN
def test_a_rank_at_a_dead_pipe_is_shown_with_its_line(
    fresh_watch: Watch, tmp_path: Path, is_attached_before: bool
) -> None:
    waiting, guilty = stuck(fresh_watch, "pipe", tmp_path, is_attached_before=is_attached_before)
    assert (guilty.has_marks, waiting.has_marks) == (is_attached_before, is_attached_before)
    assert guilty.threads[0].activity is Activity.PIPE
    assert guilty.threads[0].detail == f"opens the pipe {tmp_path}/store.fifo, which no other process has opened"
    assert deepest(guilty) == place(".open().close()")
    assert deepest(waiting) == place(".sum().backward()")
    assert waiting.threads[0].activity is Activity.COLLECTIVE
    if is_attached_before:
        (open_one,) = waiting.collectives
        assert (open_one.operation, open_one.communicator) == ("all_reduce", "gloo of 2 ranks")
        assert open_one.sequence > 0
        assert guilty.collectives == ()
    least = AFTER_MARK if is_attached_before else AFTER_ATTACHING
    assert min(guilty.silent, waiting.silent) >= least


@pytest.mark.parametrize(
    ("kind", "line"),
    [("work", "async_op=True).wait()"), pytest.param("pipe", ".sum().backward()", marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("version", [OWN, pytest.param(OLD, marks=pytest.mark.soak)])
def test_a_collector_that_attaches_late_knows_the_collective(
    fresh_watch: Watch, tmp_path: Path, kind: str, line: str, version: str
) -> None:
    """A wait for a collective, or a backward pass that waits for one. PyTorch counts the collectives from 1 on."""
    with hanging_job(kind, tmp_path, python=python_of(version)) as job:
        job.hang()
        fresh_watch.attach()
        waiting, guilty = job.threads(fresh_watch)
    (collective,) = waiting.collectives
    assert (collective.operation, collective.communicator) == ("all_reduce", "gloo of 2 ranks")
    assert collective.sequence == int((tmp_path / "store.number").read_text()) + 1
    assert waiting.threads[0].activity is Activity.COLLECTIVE
    assert deepest(waiting) == place(line)
    assert (guilty.collectives, guilty.threads[0].activity) == ((), Activity.PIPE)


GUILTY: dict[str, tuple[str, Callable[[ProcessThreads], bool]]] = {
    "lock": ("with lock, lock", lambda threads: threads.threads[0].activity is Activity.LOCK),
    "gil": ("PyDLL(None).sleep", lambda threads: "holds the GIL" in threads.threads[0].detail),
    "program": ('["sleep", "60"]', lambda threads: threads.threads[0].activity is Activity.CHILD),
    "stopped": ("os.kill(os.getpid()", lambda threads: threads.is_stopped),
    "busy": ("# without an end", lambda threads: threads.threads[0].activity is Activity.PYTHON),
}


@pytest.mark.soak
@WHEN
@pytest.mark.parametrize("kind", GUILTY)
def test_the_guilty_rank_is_shown_with_its_line(
    fresh_watch: Watch, tmp_path: Path, kind: str, is_attached_before: bool
) -> None:
    waiting, guilty = stuck(fresh_watch, kind, tmp_path, is_attached_before=is_attached_before)
    text, is_shown = GUILTY[kind]
    assert is_shown(guilty)
    assert deepest(guilty) == place(text)
    assert deepest(waiting) == place(".sum().backward()")


@pytest.mark.soak
@WHEN
def test_a_deadlocked_worker_is_shown_with_its_line(
    fresh_watch: Watch, tmp_path: Path, is_attached_before: bool
) -> None:
    _, guilty = stuck(fresh_watch, "worker", tmp_path, is_attached_before=is_attached_before)
    (worker,) = guilty.children
    assert worker.is_worker
    assert worker.threads[0].activity is Activity.LOCK
    assert (worker.threads[0].lines[0].file, worker.threads[0].lines[0].line) == place("with lock, lock")
    assert f"child {worker.pid} (pt_data_worker)" in guilty.threads[0].detail


class FakeRows:
    """Rows of processes by pid, with the times of their latest marks."""

    def __init__(self, marked: dict[int, int]) -> None:
        self.array: Any = np.zeros(len(marked), [("marked", "<u8")])
        self.array["marked"] = list(marked.values())
        self._pids = list(marked)

    def live(self) -> list[WatchedProcess]:
        return [WatchedProcess(row, 1, pid) for row, pid in enumerate(self._pids)]


class Watching:
    """The silent processes of made tables, at a made time."""

    def __init__(self, marked: dict[int, int] | None = None) -> None:
        self.now = 100.0
        rows: Any = FakeRows(marked or {})
        no_workers: Any = SimpleNamespace(by_process=dict, pids=set)
        no_threads: Any = SimpleNamespace(now=lambda process: {})
        no_collectives: Any = SimpleNamespace(of=lambda process, now: ())
        self.processes = SilentProcesses(
            rows, no_workers, no_threads, no_collectives, self._folder, lambda: round(self.now * 1e9)
        )

    def _folder(self, pid: int) -> ProcessFolder:
        return ProcessFolder(Path("/proc"), pid)

    def read(self) -> list[tuple[int, float]]:
        """The row of each process that is read, and s since its latest mark."""
        return [(silence.process.row, round(silence.threads.silent, 3)) for silence in self.processes.read()]


def test_a_process_of_pytorch_that_was_there_before_is_silent_soon_after_attaching() -> None:
    watching = Watching()
    watching.processes.note_scan([os.getpid()])
    watching.now += AFTER_ATTACHING - 0.1
    assert watching.read() == []
    watching.now += 0.2
    assert watching.read() == [(NO_ROW, AFTER_ATTACHING + 0.1)]


def test_a_process_that_begins_later_has_more_time_to_start() -> None:
    watching = Watching()
    watching.processes.note_scan([])
    watching.processes.note_scan([os.getpid()])
    watching.now += AFTER_ATTACHING + 0.1
    assert watching.read() == []
    watching.now += AFTER_MARK
    assert len(watching.read()) == 1


def test_a_process_with_a_late_mark_is_silent_since_then() -> None:
    watching = Watching({os.getpid(): 90_000_000_000})
    assert watching.read() == [(0, 10.0)]
    watching.processes._rows.array["marked"] = 99_000_000_000
    assert watching.read() == []


def test_a_process_that_is_silent_for_long_is_read_less_often() -> None:
    watching = Watching({os.getpid(): 1})
    times = []
    for _ in range(100):
        times += [silent for _, silent in watching.read()]
        watching.now += 1.0
    pauses = np.diff(times)
    assert 9 <= pauses[0] <= 12
    assert pauses[-1] >= 15


def test_a_process_that_has_ended_is_left_out() -> None:
    assert Watching({2**22 + 1: 1}).read() == []
