"""Nodes: a process with its own configuration, address and disk, which is started again if it ends."""

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from examples.cluster.disks import Disk
from examples.cluster.network import Network

_PATIENCE = 1.0
"""Seconds between the end of a process and its next start, as a service manager waits."""


@dataclass
class Node:
    """One process."""

    name: str
    address: str
    disk: Disk
    network: Network
    command: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    saves_every: float = 0.0
    """Seconds between two savings of what the process has confirmed; 0 if it saves first, and confirms then."""
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    _ended_at: float | None = None

    @property
    def log(self) -> Path:
        """What the process prints."""
        return self.disk.folder.parent / f"{self.name}.log"

    def start(self) -> None:
        """Starts the process."""
        self.starts += 1
        self._ended_at = None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  # commands of this example
                [*self.network.command(self.name), *self._as_user(), *self.command],
                stdout=log,
                stderr=log,
                env=dict(self.environment),
                cwd=self.disk.folder,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Ends the process at once, as a crash does."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Asks the process to end, and kills it after 10 s."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def watch(self) -> None:
        """Starts the process again if it has ended a second ago. Call it several times a second."""
        if self.process is None or self.process.poll() is None:
            return
        self._ended_at = self._ended_at or time.monotonic()
        if time.monotonic() - self._ended_at >= _PATIENCE:
            self.start()

    def _as_user(self) -> list[str]:
        if self.user is None:
            return []
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
