"""Fails a test that leaves a process behind.

Such a process disturbs later tests, which then take the blame. A `Popen` that is collected while its process runs
raises a warning in whichever test runs at that moment.
"""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

PATIENCE = 10.0
"""Seconds, for a process that was sent a signal but not waited for."""
_STAY = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python starts them once for a whole process."""


_of_wider_fixtures: set[int] = set()
"""Processes that fixtures of wider scope have started."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Notes the processes of fixtures that outlive a test. A test may ask for one by `getfixturevalue`."""
    if fixturedef.scope == "function":
        return (yield)
    before = _candidates()
    result = yield
    _of_wider_fixtures.update(_candidates() - before)
    return result


@pytest.fixture(autouse=True)
def no_process_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails if the test has started processes that still run."""
    before = _candidates()
    yield
    end = monotonic() + PATIENCE
    test = request.node.nodeid
    while left := {pid: _command(pid) for pid in _candidates() - before - _of_wider_fixtures if _is_left(pid, test)}:
        if monotonic() > end:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"the test left processes: {left}")
        sleep(0.01)


def _candidates() -> set[int]:
    """The children of this process, and of init, which adopts orphans. Empty where the kernel does not list them."""
    lists = [*Path("/proc/self/task").glob("*/children"), Path("/proc/1/task/1/children")]
    return {int(pid) for threads in lists for pid in _text(threads).split()}


def _is_left(pid: int, test: str) -> bool:
    """Whether the process is this test's, and has to end. An ended process has no command."""
    if not _command(pid) or any(name in _command(pid) for name in _STAY):
        return False
    # pytest sets the variable. init may also adopt processes of other programs, and of fixtures, such as a browser's.
    is_child = f"PPid:\t{os.getpid()}\n" in _text(Path(f"/proc/{pid}/status"))
    return is_child or f"PYTEST_CURRENT_TEST={test} (call)" in _text(Path(f"/proc/{pid}/environ"))


def _command(pid: int) -> str:
    return _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # the thread or the process has ended
        return ""
