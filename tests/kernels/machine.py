"""An emulated machine, which boots a kernel with files of this machine, runs a script and powers off."""

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kernels.catalogue import Architecture
from tests.kernels.initramfs import write_initramfs

_MACHINES: dict[Architecture, tuple[str, ...]] = {
    # An old processor without wide vectors: glibc would use them, and they are slow to emulate.
    "x86_64": ("qemu-system-x86_64", "-cpu", "Nehalem"),
    "aarch64": ("qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on"),
}
_CONSOLES: dict[Architecture, str] = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}


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

    def run(self, script: str, results: Path, seconds: float) -> None:
        """Runs a shell script. Its `/run/results` is the folder `results`, and its output goes to `results/log`.

        Raises BootFailed if the script fails or takes longer than `seconds`.
        """
        results.mkdir(parents=True, exist_ok=True)
        (results / "run.sh").write_text(f"set -e\n{script}\ntouch /run/results/finished\n")
        (results / "now").write_text(str(int(time.time())))
        write_initramfs(self.kernel, self.busybox, results / "initramfs")
        console = results / "console"
        try:
            with console.open("wb") as output:
                subprocess.run(
                    self._command(results), check=True, timeout=seconds, stdin=subprocess.DEVNULL, stdout=output
                )
        except (OSError, subprocess.SubprocessError) as failed:
            raise BootFailed(f"{failed}\n{_end_of(console)}\n{_end_of(results / 'log')}") from failed
        finally:
            shutil.rmtree(results / "initramfs.tree", ignore_errors=True)
        if not (results / "finished").exists():
            raise BootFailed(f"the script failed\n{_end_of(console)}\n{_end_of(results / 'log')}")

    def _command(self, results: Path) -> list[str]:
        console = _CONSOLES[self.architecture]
        packaged = next(self.kernel.rglob("vmlinu*"))
        return [
            *_MACHINES[self.architecture],
            *("-accel", "tcg,thread=multi", "-smp", "2", "-m", "4096", "-nographic", "-no-reboot"),
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


def _end_of(file: Path) -> str:
    return file.read_text(errors="replace")[-3000:] if file.exists() else ""
