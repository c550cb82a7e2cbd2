"""The disks of the nodes: small file systems in memory that can be filled, or plain folders."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_SIZE = "256m"
_FILLER = ".filler"


class Disk:
    """The disk of one node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.can_fill = os.geteuid() == 0 and self._mount()

    def fill(self) -> None:
        """Leaves no room."""
        with suppress(OSError), (self.folder / _FILLER).open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(1 << 20))
        with suppress(OSError), (self.folder / _FILLER).open("ab", buffering=0) as filler:
            while True:
                filler.write(bytes(512))

    def empty(self) -> None:
        """Gives the room back."""
        (self.folder / _FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        if self.can_fill:
            _run("umount", "--lazy", str(self.folder))

    def _mount(self) -> bool:
        return _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(self.folder)) == 0


def _run(*words: str) -> int:
    return subprocess.run(words, check=False, capture_output=True).returncode  # noqa: S603  # words of this file
