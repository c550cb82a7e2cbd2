"""Fails a test that leaves a process behind.

Such a process disturbs later tests, which then take the blame. A `Popen` object without a wait for
its process raises a warning in whichever test runs when it is collected.
"""

import gc
import os
import subprocess
from collections.abc import Generator, Iterator
from time import monotonic, sleep
from typing import Final

import psutil
import pytest

PATIENCE: Final = float(os.environ.get("PATIENCE_WITH_LEFT_PROCESSES", "10"))
"""Seconds, for a process that was sent a signal but not waited for."""
SERVERS: Final[set[int]] = set()
"""Servers of fixtures that outlive a test. A test may restart them."""
_SHARED: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python starts them once for a whole process."""
_STARTED: Final = pytest.StashKey[list[psutil.Process]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Notes the processes that the test itself started, without those of its fixtures."""
    before = set(psutil.pids())
    try:
        return (yield)
    finally:
        item.stash[_STARTED] = list(_started(set(psutil.pids()) - before, f"{item.nodeid} (call)"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fails the test if those processes outlive its fixtures."""
    try:
        return (yield)
    finally:
        end = monotonic() + PATIENCE
        while left := [process for process in item.stash.get(_STARTED, []) if _is_left(process)]:
            if monotonic() > end:
                commands = [_command(process) for process in left]
                for process in left:
                    process.kill()
                pytest.fail(f"the test left processes: {commands}")
            sleep(0.01)


def _started(pids: set[int], test: str) -> Iterator[psutil.Process]:
    for pid in pids:
        try:
            process = psutil.Process(pid)
            is_child = process.ppid() == os.getpid()
            # pytest sets the variable. An orphan has it, too.
            if (is_child or process.environ().get("PYTEST_CURRENT_TEST") == test) and not _may_stay(process):
                yield process
        except psutil.Error:  # it has ended, or is another user's
            continue


def _is_left(process: psutil.Process) -> bool:
    """Whether it runs, or has ended and its `Popen` object does not know."""
    try:
        is_running = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    return is_running or (process.is_running() and _has_object(process.pid))


def _has_object(pid: int) -> bool:
    programs = (item for item in gc.get_objects() if issubclass(type(item), subprocess.Popen))
    return any(program.pid == pid and program.returncode is None for program in programs)


def _may_stay(process: psutil.Process) -> bool:
    ancestors = {process.pid, *(ancestor.pid for ancestor in process.parents())}
    return bool(ancestors & SERVERS) or any(name in _command(process) for name in _SHARED)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return f"pid {process.pid}, which nobody waited for"
