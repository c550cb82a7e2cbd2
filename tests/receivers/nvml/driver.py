"""A stand-in for NVIDIA's driver. Text files describe the boards; tests change the boards at run time."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


class Driver:
    """The stand-in's controls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def boot(self, scenario: str) -> "Driver":
        """Boots a machine with the scenario's boards."""
        assert self._library.standin_load(str(HERE / "scenarios" / f"{scenario}.txt").encode()), scenario
        return self

    @property
    def users(self) -> int:
        """The number of `nvmlInit` calls without a matching `nvmlShutdown`."""
        return int(self._library.standin_users())

    def apply(self, *lines: str) -> None:
        """Applies further lines of a scenario (see scenario.c)."""
        assert self._library.standin_apply("\n".join(lines).encode("utf-8", "surrogateescape")), lines


@cache
def driver() -> Driver:
    """The stand-in of this process, built and loaded. Skips the test if there is no compiler.

    pynvml's own `CDLL("libnvidia-ml.so.1")` finds the library that is loaded under this name, so a process may load
    only one.
    """
    with tempfile.TemporaryDirectory() as folder:
        return Driver(ctypes.CDLL(str(build(Path(folder)))))


def build_nvidia_smi(folder: Path) -> Path:
    """Compiles a stand-in for nvidia-smi, linked to the stand-in for its library, which must be in the folder."""
    program, source = folder / "nvidia-smi", HERE.parents[1] / "gpu" / "nvidia_smi.c"
    link = [f"-L{folder}", "-l:libnvidia-ml.so.1", f"-Wl,-rpath,{folder}"]
    subprocess.run([_compiler(), *FLAGS, "-o", str(program), str(source), *link], check=True)
    return program


def _compiler() -> str:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("needs a C compiler to build the stand-in for libnvidia-ml.so.1")
    return compiler


def build(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """Compiles the stand-in. `without` names functions that an older driver does not have."""
    library = folder / "libnvidia-ml.so.1"
    sources = [str(source) for source in sorted((HERE / "standin").glob("*.c"))]
    hidden = folder / "hidden"
    hidden.write_text("{ local: " + "".join(f"{name}; " for name in ("none", *without)) + "};")
    link = [f"-Wl,-soname,{library.name}", f"-Wl,--version-script={hidden}"]
    command = [_compiler(), *FLAGS, "-shared", "-fPIC", *link, "-o", str(library), *sources, "-lpthread"]
    subprocess.run(command, check=True)
    return library
