"""Property tests, free ports, processes that a test leaves, and which tests may run at the same time."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.free_ports import free_port
from tests.left_processes import pytest_runtest_call as pytest_runtest_call
from tests.left_processes import pytest_runtest_teardown as pytest_runtest_teardown

_TESTS: Final = Path(__file__).parent
_GROUPS: Final = {
    "machine": (
        *("receivers/ebpf", "receivers/bcc", "processors/phases/training_loops", "processors/phases/planted"),
        *("frameworks", "gpu", "kernels"),
    ),
    "programs": ("commands", "deploy", "examples", "interop"),
}
"""Folders whose tests run one after the other. `machine`: they probe a kernel, or judge the times of a training.
`programs`: they start the whole collector. Other tests only wait for those in their own file."""


for _number in (signal.SIGINT, signal.SIGHUP):  # `nohup make test &` ignores them, and so would the programs of tests
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
# Many tests start Python: with this variable, each start would compile the collector.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without the garbage collector, which would search all tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Keeps the garbage collector from what is older than the tests of a file: a collection would take half a second.
    Reloads in earlier tests have ended that."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # emulated machines have no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Runs tests of different groups at the same time if `--numprocesses` is more than 1."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no annotations
        def _split_scope(self, nodeid: str) -> str:
            return _group(Path(nodeid.partition("::")[0]).relative_to(_TESTS.name))

    return ByGroup(config, log)


def _group(path: Path) -> str:
    folders = {str(folder) for folder in path.parents}
    return next((name for name, members in _GROUPS.items() if folders.intersection(members)), str(path))


# `make test` has 60 examples of each property, `make soak` 5,000. Hypothesis would fail a test if a busy machine needs
# long for its examples.
settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "soak", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Callable[[], int]:
    """In place of pytest-asyncio's, whose ports the kernel may give to another connection meanwhile."""
    return free_port


@pytest.fixture
def unused_tcp_port() -> int:
    return free_port()
