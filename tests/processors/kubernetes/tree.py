"""A fixture tree of /proc: processes with control groups, mounts and environments."""

import os
from datetime import UTC, datetime
from pathlib import Path

BOOTED = 1_700_000_000
TICKS = os.sysconf("SC_CLK_TCK")


class ProcTree:
    """Files as the kernel has them, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "stat").write_text(f"cpu  1 2 3\nbtime {BOOTED}\nprocesses 5\n", "utf-8")

    def add(
        self,
        pid: int,
        *,
        started: float = 100.0,
        cgroup: str = "/",
        pod: str = "",
        container: str = "",
        environment: dict[str, str] | None = None,
    ) -> str:
        """A process that started so many seconds after the boot. The result is its `process.creation.time`.

        `pod` and `container` are those of the kubelet's mounts. Without an environment, it cannot be read.
        """
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        fields = " ".join(["S", "1", *["0"] * 17, str(int(started * TICKS)), *["0"] * 30])
        (folder / "stat").write_text(f"{pid} (python) 3 (x)) {fields}\n", "utf-8")
        (folder / "cgroup").write_text(f"0::{cgroup}\n", "utf-8")
        mounts = ["1 0 0:1 / / rw - overlay overlay rw"]
        if pod:
            root = f"/var/lib/kubelet/pods/{pod}"
            mounts.append(f"2 1 8:1 {root}/etc-hosts /etc/hosts rw - ext4 /dev/sda rw")
            mounts.append(f"3 1 8:1 {root}/containers/{container}/0a1b2c3d /dev/termination-log rw - ext4 /dev/sda rw")
        (folder / "mountinfo").write_text("\n".join(mounts) + "\n", "utf-8")
        if environment is not None:
            (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in environment.items()))
        return created(started)

    def end(self, pid: int) -> None:
        for file in (self.folder / str(pid)).iterdir():
            file.unlink()
        (self.folder / str(pid)).rmdir()


def created(started: float) -> str:
    return datetime.fromtimestamp(BOOTED + started, UTC).isoformat(timespec="milliseconds")
