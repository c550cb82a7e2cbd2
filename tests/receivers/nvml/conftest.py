"""A stand-in for NVIDIA's driver, built and loaded: `driver("h200")` is a machine with those boards."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STANDIN = HERE / "standin"


def build(folder: Path) -> Path:
    """Compiles the stand-in; skips the test where there is no compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    library = folder / "libnvidia-ml.so.1"
    sources = [str(source) for source in sorted(STANDIN.glob("*.c"))]
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
    subprocess.run([compiler, *flags, "-o", str(library), *sources, "-lpthread"], check=True)
    return library


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The stand-in, in this process. pynvml's own `CDLL("libnvidia-ml.so.1")` finds what is loaded under that name."""
    return ctypes.CDLL(str(build(tmp_path_factory.mktemp("nvml"))))


class Driver:
    """The stand-in's controls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def boot(self, scenario: str) -> "Driver":
        """A machine with the scenario's boards."""
        assert self._library.standin_load(str(HERE / "scenarios" / f"{scenario}.txt").encode()), scenario
        return self

    def apply(self, *lines: str) -> None:
        """Lines of a scenario, from now on."""
        assert self._library.standin_apply("\n".join(lines).encode()), lines


@pytest.fixture
def driver(standin: ctypes.CDLL) -> Iterator[Callable[[str], Driver]]:
    """Boots a scenario; lets go of whoever hangs in the end."""
    controls = Driver(standin)
    yield controls.boot
    controls.apply("gpu 0-7", "hang -")
