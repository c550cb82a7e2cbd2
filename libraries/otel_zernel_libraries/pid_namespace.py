"""Whether this process sees the processes of the whole machine, or only those of a container."""

from pathlib import Path
from typing import Final

INITIAL: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO (include/linux/proc_ns.h)
"""The inode of the machine's initial PID namespace."""


def unseen_processes(root: Path = Path("/proc")) -> str:
    """The sentence that says which processes are not seen, and how to see them; empty if all are."""
    try:
        is_initial = (root / "self/ns/pid").stat().st_ino == INITIAL
    except OSError:
        return ""
    if is_initial:
        return ""
    return (
        "Only the processes of this PID namespace are seen, which is that of a container. To see all processes of the "
        "machine, start the container with `--pid=host` (Docker, Podman) or `hostPID: true` (Kubernetes), or run the "
        "command outside of it."
    )
