"""Which processes are workers of a training process, by their parents and command lines."""

from dataclasses import dataclass

import pytest

from otel_zernel_receivers.ebpf.processes.workers import descends_from
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

TRAIN = b"python\0train.py\0"
SPAWN = b"python\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=7)\0--multiprocessing-fork\0"
FORKSERVER = b"python\0-c\0from multiprocessing.forkserver import main; main(5, 6, ['__main__'])\0"
LAUNCHER = b"python\0torchrun\0train.py\0"
TRAINER = WatchedProcess(0, 1, 100)


@dataclass
class Folder:
    """The parts of a process's folder in /proc that are read."""

    pid: int
    of: int
    command_line: bytes

    def parent(self) -> int:
        return self.of


def found(*processes: tuple[int, int, bytes], of: int) -> WatchedProcess | None:
    """The trainer of process `of` among these: pid, parent and command line. Process 100 trains."""
    folders = {pid: Folder(pid, parent, command) for pid, parent, command in [*processes, (1, 0, b"init\0")]}

    def folder_of(pid: int) -> Folder:
        if pid not in folders:
            raise FileNotFoundError
        return folders[pid]

    return descends_from(folders[of], {100: TRAINER}, folder_of)  # type: ignore[arg-type]  # the methods that it uses


@pytest.mark.parametrize(
    "processes",
    [
        pytest.param([(200, 100, TRAIN)], id="fork"),
        pytest.param([(200, 100, SPAWN)], id="spawn"),
        pytest.param([(200, 150, FORKSERVER), (150, 100, FORKSERVER)], id="forkserver"),
        pytest.param([(200, 150, SPAWN), (150, 100, TRAIN)], id="worker of a worker"),
    ],
)
def test_children_by_multiprocessing_are_workers(processes: list[tuple[int, int, bytes]]) -> None:
    assert found((100, 1, TRAIN), *processes, of=200) == TRAINER


@pytest.mark.parametrize(
    "processes",
    [
        pytest.param([(200, 100, b"python\0evaluate.py\0")], id="another program"),
        pytest.param([(200, 100, b"")], id="no command line"),
        pytest.param([(200, 1, TRAIN)], id="a child of init"),
        pytest.param([(200, 150, TRAIN), (150, 1, LAUNCHER)], id="a rank of a launcher"),
        pytest.param([(200, 150, TRAIN)], id="the parent has ended"),
        pytest.param(
            [(200, 201, TRAIN), (201, 202, TRAIN), (202, 203, TRAIN), (203, 204, TRAIN), (204, 100, TRAIN)], id="far"
        ),
    ],
)
def test_others_are_not(processes: list[tuple[int, int, bytes]]) -> None:
    assert found((100, 1, TRAIN), *processes, of=200) is None
