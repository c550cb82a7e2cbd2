"""An emulated machine, which boots a kernel with files of this machine, runs a script and powers off."""

import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.kernels.catalogue import Architecture
from tests.kernels.emulator.initramfs import write_initramfs
from tests.kernels.emulator.watchdog import StandsStill, run_watched

_MACHINES: dict[Architecture, tuple[str, ...]] = {
    # An old processor without wide vectors: glibc would use them, and they are slow to emulate. One thread runs both
    # CPUs in turn: with a thread each, one CPU now and then waits forever, and Linux reports a soft lockup.
    "x86_64": ("qemu-system-x86_64", "-cpu", "Nehalem", "-accel", "tcg,thread=single"),
    "aarch64": ("qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on", "-accel", "tcg,thread=multi"),
}
_CONSOLES: dict[Architecture, str] = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}
CPUS = 2
BOOTS = 3
"""A machine that stands still is booted this often in all."""
SILENCE = 180.0
"""Seconds. On a busy host, a machine needs up to a minute until its script begins."""


class BootFailed(Exception):
    """The machine did not finish its script; the message ends with the output of its console."""


@dataclass(frozen=True, slots=True)
class EmulatedMachine:
    """An emulated machine."""

    architecture: Architecture
    kernel: Path
    """The unpacked package of the kernel."""
    root: Path
    """The tree that the machine sees as `/`, read only."""
    busybox: Path
    arguments: str = ""
    """Added to the kernel's command line."""
    image: Path | None = None
    """The image to boot; None boots the package's."""
    emulator: str | None = None
    """The program to start in place of qemu."""
    silence: float = SILENCE
    """If a CPU does not run for this many seconds, the machine stands still."""

    def run(self, script: str, results: Path, seconds: float) -> int:
        """Runs a shell script. Its `/run/results` is the folder `results`, and its output goes to `results/log`.

        A machine that stands still is booted again, and the files it made are deleted; `results/console.1` keeps the
        console of the first such boot. Returns the number of boots. Raises BootFailed if the script fails or takes
        longer than `seconds`, and if the last of `BOOTS` machines stands still.
        """
        results.mkdir(parents=True, exist_ok=True)
        (results / "run.sh").write_text(f"set -e\n{script}\ntouch /run/results/finished\n")
        write_initramfs(self.kernel, self.busybox, results / "initramfs")
        shutil.rmtree(results / "initramfs.tree")
        own = set(results.iterdir())
        deadline = time.monotonic() + seconds
        for boot in range(1, BOOTS + 1):
            try:
                self._boot(results, deadline)
            except BootFailed as failed:
                raise BootFailed(f"boot {boot} of at most {BOOTS}: {failed}") from failed
            except StandsStill:
                own.add((results / "console").rename(results / f"console.{boot}"))
                _delete(set(results.iterdir()) - own)
            else:
                return boot
        last = _end_of(results / f"console.{BOOTS}")
        raise BootFailed(f"all {BOOTS} machines stood still: a CPU did not run for {self.silence:.0f} s\n{last}")

    def _boot(self, results: Path, deadline: float) -> None:
        """Boots once. Raises StandsStill or BootFailed."""
        (results / "now").write_text(str(int(time.time())))
        beats = [results / f"beat.{cpu}" for cpu in range(CPUS)]
        try:
            run_watched(self._command(results), results / "console", beats, self.silence, deadline)
        except (OSError, subprocess.SubprocessError) as failed:
            raise BootFailed(f"{failed}\n{_outputs(results)}") from failed
        if not (results / "finished").exists():
            raise BootFailed(f"the script failed\n{_outputs(results)}")

    def _command(self, results: Path) -> list[str]:
        (program, *options), console = _MACHINES[self.architecture], _CONSOLES[self.architecture]
        packaged = next(self.kernel.rglob("vmlinu*"))
        return [
            self.emulator or program,
            *options,
            *("-smp", str(CPUS), "-m", "4096", "-nographic", "-no-reboot"),
            *("-kernel", str(self.image or packaged), "-initrd", str(results / "initramfs")),
            *("-append", f"console={console} quiet panic=-1 mitigations=off {self.arguments}"),
            *_share("root", self.root, ",readonly=on"),
            *_share("results", results, ""),
        ]


def _share(name: str, folder: Path, options: str) -> tuple[str, ...]:
    return (
        "-fsdev",
        f"local,id={name},path={folder},multidevs=remap,security_model=none{options}",
        "-device",
        f"virtio-9p-pci,fsdev={name},mount_tag={name}",
    )


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _outputs(results: Path) -> str:
    return f"{_end_of(results / 'console')}\n{_end_of(results / 'log')}"


def _end_of(file: Path) -> str:
    return file.read_text(errors="replace")[-3000:] if file.exists() else ""
