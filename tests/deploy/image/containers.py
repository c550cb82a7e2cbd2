"""Runs the image as Kubernetes does: the process has the user, the capabilities and the mounts of a container's spec.

Kubernetes gives no ambient and no inheritable capabilities (containerd, from version 1.6.2 on).
"""

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

ENTRYPOINT: Final = ("/usr/bin/tini", "-s", "--", "/usr/bin/otel-zernel")
_MASKED: Final = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware")


@dataclass(frozen=True)
class Container:
    """The fields of a container's spec that decide how its process runs."""

    args: Sequence[str]
    user: int = 10001
    group: int = 10001
    capabilities: Sequence[str] = ()
    """Without `CAP_`."""
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[Path, Path] = field(default_factory=dict)
    """Folders and files of the host by their paths in the container. Writable."""
    read_only: Collection[Path] = ()
    """Those of these paths that are not writable."""
    host_pid: bool = False
    entrypoint: Sequence[str] = ENTRYPOINT

    def spec(self, root: Path) -> dict[str, Any]:
        """The specification for the runtime. The network is the host's, so that tests reach ports on localhost."""
        held = [f"CAP_{name}" for name in self.capabilities]
        environ = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **self.env}
        kinds = ["mount", "ipc", "uts", *([] if self.host_pid else ["pid"])]
        return {
            "ociVersion": "1.0.2",
            "root": {"path": str(root), "readonly": True},
            "process": {
                "user": {"uid": self.user, "gid": self.group},
                "args": [*self.entrypoint, *self.args],
                "cwd": "/",
                "env": [f"{name}={value}" for name, value in environ.items()],
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
                "noNewPrivileges": True,
            },
            "mounts": [*_system_mounts(), *(self._bind(there, here) for there, here in self.mounts.items())],
            "linux": {"namespaces": [{"type": kind} for kind in kinds], "maskedPaths": list(_MASKED)},
        }

    def _bind(self, inside: Path, outside: Path) -> dict[str, Any]:
        options = ["rbind", "ro" if inside in self.read_only else "rw"]
        return {"destination": str(inside), "type": "bind", "source": str(outside), "options": options}


def _system_mounts() -> list[dict[str, Any]]:
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
    ]


@contextmanager
def running(container: Container, root: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The container's process, with its log as a pipe. Its signals go to PID 1 of the container by way of runc."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(container.spec(root)))
    name, state = f"otel-zernel-{uuid4().hex[:8]}", str(folder / "state")
    command = ["runc", "--root", state, "run", "--bundle", str(folder), name]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            subprocess.run(["runc", "--root", state, "delete", "--force", name], capture_output=True, check=False)
            process.kill()


def output(container: Container, root: Path, folder: Path) -> tuple[int, str]:
    """The exit status of the container, and its log."""
    with running(container, root, folder) as process:
        text, _ = process.communicate(timeout=120)
        return process.returncode, text
