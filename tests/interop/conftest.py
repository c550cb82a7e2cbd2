"""The other programs that these tests use."""

import importlib.util
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.interop.installed import find_peer, miss
from tests.interop.rotel import Rotel, running


@pytest.fixture(scope="session")
def peer() -> Callable[[str], Path]:
    """`peer(program)` is the path of the program."""
    return find_peer


@pytest.fixture
async def rotel(
    peer: Callable[[str], Path], unused_tcp_port_factory: Callable[[], int], tmp_path: Path
) -> AsyncIterator[Rotel]:
    """A running rotel."""
    package = importlib.util.find_spec("rotel")
    folder = Path(package.origin).parent if package and package.origin else Path()
    program = peer(str(folder / "rotel-agent"))
    if (trial := subprocess.run([program, "--version"], capture_output=True, text=True)).returncode:  # noqa: ASYNC221
        miss(f"rotel does not run with this Python (it needs its libpython): {trial.stderr.strip()}")
    async with running(program, tmp_path, unused_tcp_port_factory(), unused_tcp_port_factory()) as one:
        yield one
