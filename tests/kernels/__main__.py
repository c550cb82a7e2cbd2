"""The command behind `make kernels`."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kernels import report
from tests.kernels.acceptance import FULL, SHORT
from tests.kernels.campaign import Result, read, run
from tests.kernels.catalogue import KERNELS, Kernel, named
from tests.kernels.debian.packages import CannotDownload
from tests.kernels.emulator.machine import BootFailed

HERE = "here"


def main() -> int:
    """Boots the kernels. Returns 1 if one differs from the catalogue's promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description=__doc__)
    parser.add_argument("kernels", nargs="*", help=f"{', '.join(one.name for one in KERNELS)} or {HERE}; default: all")
    parser.add_argument("--short", action="store_true", help="run few tests, and do not write docs/kernels.md")
    parser.add_argument("--results", type=Path, help="folder for the files that each machine writes")
    options = parser.parse_args()
    folder = options.results or Path(tempfile.mkdtemp(prefix="kernels-"))
    kernels = [report.here() if name == HERE else named(name) for name in options.kernels] or [*KERNELS, report.here()]
    good = [_try(kernel, folder / kernel.name, short=options.short) for kernel in kernels]
    return int(not all(good))


def _try(kernel: Kernel, folder: Path, *, short: bool) -> bool:
    began = time.monotonic()
    try:
        result = (_run_here if kernel.name == report.here().name else run)(kernel, SHORT if short else FULL, folder)
    except (CannotDownload, BootFailed) as failed:
        print(f"{kernel.name}: {failed}")
        return False
    if not short:
        report.store(result)
    outcomes = ", ".join(f"{result.count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(f"{kernel.name}: Linux {result.release}, {', '.join(result.modes) or 'no mode works'}, {outcomes}", end=" ")
    print(f"in {time.monotonic() - began:.0f} s, {_boots(result)}; see {folder}")
    for failure in result.failures:
        print(f"  {failure}")
    return not result.failures


def _boots(result: Result) -> str:
    return "1 boot" if result.boots == 1 else f"{result.boots} boots, because the emulated machine stood still"


def _run_here(kernel: Kernel, tests: tuple[str, ...], folder: Path) -> Result:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "tests.kernels.guest", str(folder), *tests], check=True)
    return read(kernel, folder)


sys.exit(main())
