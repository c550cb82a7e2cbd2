"""Boots a kernel and returns the result of its guest."""

import compileall
import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tests.kernels.catalogue import Architecture, Kernel
from tests.kernels.debian.arm64_root import IN_ROOT, arm64_root
from tests.kernels.debian.packages import unpacked_kernel
from tests.kernels.emulator.machine import EmulatedMachine
from tests.receivers.ebpf.standin import Prologue, compile_all

ROOT = Path(__file__).parents[2]
SECONDS = 3 * 3600.0
"""For all tests, on a busy machine."""
_BUSYBOX = Path("bin/busybox")

_SCRIPT = """
export HOME=/run/home TMPDIR=/run/tmp PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1
export STANDINS=/run/results/standins HYPOTHESIS_STORAGE_DIRECTORY=/run/tmp/hypothesis
export ZERNEL_PATIENCE=300 ZERNEL_MODES={modes} PYTHONPATH={paths}
{before}
cd {project} && {python} -m tests.kernels.guest /run/results {tests}
"""
_COMPILERS: dict[Architecture, str] = {"x86_64": "cc", "aarch64": "aarch64-linux-gnu-gcc"}
_SOURCE_ROOTS = (".", "libraries", "receivers", "processors", "exporters", "extensions")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one kernel, read from the `result.json` of its guest."""

    kernel: Kernel
    release: str
    loads: dict[str, dict[str, Any]]
    """By `mode/variant`: `call_ns`, `floor_ns` and `unseen`, or `error`."""
    doctor: str
    tests: dict[str, str]
    """`passed`, `failed` or `skipped` by the name of the test."""
    boots: int = 1
    """More than 1 if the emulated machine stood still and was booted again."""

    @property
    def modes(self) -> list[str]:
        """The attach modes that work, best first."""
        return list(dict.fromkeys(name.partition("/")[0] for name, load in self.loads.items() if "error" not in load))

    def count(self, outcome: str) -> int:
        """The number of tests with this outcome."""
        return list(self.tests.values()).count(outcome)

    @property
    def failures(self) -> list[str]:
        """The differences from the catalogue's promise; empty if there is none."""
        failed = [name for name, outcome in self.tests.items() if outcome == "failed"]
        best = self.modes[0] if self.modes else None
        wrong = [] if best == self.kernel.mode else [f"the best mode is {best}, not {self.kernel.mode}"]
        ran = self.kernel.mode is None or self.count("passed") > self.count("skipped")  # those of other modes
        idle = [] if ran else [f"only {self.count('passed')} tests passed, {self.count('skipped')} were skipped"]
        return wrong + idle + failed


def package(kernel: Kernel) -> Path:
    """The unpacked package of a kernel. Raises CannotDownload."""
    return unpacked_kernel(_pattern(kernel), kernel.release, kernel.debian_architecture)


def run(
    kernel: Kernel,
    tests: Sequence[str],
    results: Path,
    before: str = "",
    arguments: str = "",
    image: Path | None = None,
    seconds: float = SECONDS,
) -> Result:
    """Boots a kernel and runs the tests.

    `before` is a shell command that runs first, `arguments` are added to the kernel's command line, and `image` boots
    instead of the package's image. Raises CannotDownload or BootFailed.
    """
    shutil.rmtree(results, ignore_errors=True)
    root, project, python = _places(kernel)
    for folder in (*_SOURCE_ROOTS[1:], "tests", "otel_zernel"):
        compileall.compile_dir(root / project.relative_to("/") / folder, quiet=2)
    machine = EmulatedMachine(kernel.architecture, package(kernel), root, root / _BUSYBOX, arguments, image)
    for prologue in get_args(Prologue):
        compile_all(results / "standins" / prologue, prologue, kernel.architecture, _COMPILERS[kernel.architecture])
    script = _SCRIPT.format(
        modes=kernel.mode or "none",
        project=shlex.quote(str(project)),
        paths=shlex.quote(":".join(str(project / source) for source in _SOURCE_ROOTS)),
        python=shlex.quote(python),
        tests=shlex.join(tests if kernel.mode else ()),
        before=before,
    )
    boots = machine.run(script, results, seconds)
    return read(kernel, results, boots)


def read(kernel: Kernel, results: Path, boots: int = 1) -> Result:
    """The result that a guest has written to the folder."""
    loads = json.loads((results / "result.json").read_text())
    return Result(kernel, loads["kernel"], loads["loads"], loads["doctor"], loads["tests"], boots)


def _pattern(kernel: Kernel) -> str:
    """A regular expression for the name of the kernel's package, without flavours such as `-cloud`."""
    numbers = rf"{kernel.version}\.[\d.]+" if kernel.version.isdigit() else rf"{re.escape(kernel.version)}[.\d]*"
    return rf"linux-image-{numbers}(-\d+)?(\+deb\d+(\.\d+)?)?-{kernel.debian_architecture}"


def _places(kernel: Kernel) -> tuple[Path, Path, str]:
    """The root folder that the kernel sees, and in it the project's folder and the Python to run."""
    if kernel.architecture == "aarch64":
        return arm64_root(), Path("/", IN_ROOT), "/usr/bin/python3"
    return Path("/"), ROOT, sys.executable
