"""The pytest fixtures `standin` and `build_standin`, for a conftest.py to import."""

import os
from collections.abc import Callable

import pytest

from tests.receivers.ebpf.standin import NoCompiler, Prologue, Standin, build

BuildStandin = Callable[[Prologue], Standin]


@pytest.fixture(scope="session")
def build_standin(tmp_path_factory: pytest.TempPathFactory) -> BuildStandin:
    """Builds the stand-ins with a kind of prologue, each kind once. Skips the test if no compiler is installed."""
    built: dict[Prologue, Standin] = {}

    def once(prologue: Prologue) -> Standin:
        if prologue not in built:
            built[prologue] = _build_or_skip(tmp_path_factory, prologue)
        return built[prologue]

    return once


@pytest.fixture(scope="session")
def standin(build_standin: BuildStandin) -> Standin:
    """The stand-ins for most tests: functions begin with `push`, like NVIDIA's."""
    return build_standin("push")


def _build_or_skip(folders: pytest.TempPathFactory, prologue: Prologue) -> Standin:
    try:
        return build(folders.mktemp("standin") / prologue, prologue)
    except NoCompiler as missing:
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)(f"no stand-ins: {missing}")
