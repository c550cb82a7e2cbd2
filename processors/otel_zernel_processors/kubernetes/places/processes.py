"""The places of processes, pod and container, from the paths of /proc/PID/cgroup and /proc/PID/mountinfo.

containerd, CRI-O and Docker agree, with cgroup v1 and v2 and both cgroup drivers of the kubelet: a container's id has
64 hexadecimal digits, and the uid of a pod follows `pod` in the path. A static pod has a uid of 32 digits.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from otel_zernel_libraries.job_environment import JOB_VARIABLES, names_own_job

_CONTAINER: Final = re.compile(r"[0-9a-f]{64}")
_UUID: Final = "[-_]".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12))
_POD: Final = re.compile(f"pod({_UUID}|[0-9a-f]{{32}})(?![0-9a-f])")
_MONITOR: Final = re.compile(r"(crio-conmon|libpod-conmon)-")
"""The process of CRI-O that watches a container, in a group with the container's id."""
_MOUNT: Final = re.compile(r"/pods/(?P<uid>[0-9a-f-]{32,36})/(?:etc-hosts|containers/(?P<name>[^/]+)/[^/]+)$")
"""The source of a file that the kubelet mounts into each container: the host names, and the termination message
(pkg/kubelet/kubelet_pods.go, pkg/kubelet/kuberuntime/kuberuntime_container.go)."""
_SLURM: Final = re.compile(r"/slurmstepd\.scope/job_(\d+)(?:/|$)|/slurm(?:_[^/]+)?/uid_\d+/job_(\d+)(?:/|$)")
"""The group of a job of Slurm, cgroup v2 and v1 (src/plugins/cgroup)."""


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """The container of a process. Empty texts are not known."""

    pod_uid: str = ""
    container_id: str = ""
    container_name: str = ""
    slurm_job: str = ""
    """The id of the job of Slurm, on bare metal."""


def place_of(cgroup: str, mountinfo: str) -> ContainerPlace:
    """The place of a process, from the texts of its two files.

    In a container with a control group namespace of its own, the paths of `cgroup` are relative to that of the reader,
    and may have no uid of the pod. The kubelet's mounts have it.
    """
    place = _of_mounts(mountinfo)
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        place = replace(
            place,
            pod_uid=place.pod_uid or _pod_uid(path),
            container_id=place.container_id or _container_id(path),
            slurm_job=place.slurm_job or _slurm_job(path),
        )
    return place


def _of_mounts(mountinfo: str) -> ContainerPlace:
    """Fields 4 and 5 of proc(5) `mountinfo` are the path in the mounted file system, and the mount point."""
    uid = name = ""
    for line in mountinfo.splitlines():
        fields = line.split(" ", 5)
        match = _MOUNT.search(fields[3]) if len(fields) > 5 else None
        if match and match["name"]:
            uid, name = match["uid"], match["name"]
        elif match and fields[4] == "/etc/hosts":
            uid = uid or match["uid"]
    return ContainerPlace(pod_uid=uid, container_name=name)


def _pod_uid(path: str) -> str:
    match = _POD.search(path)
    return match[1].replace("_", "-") if match else ""


def _container_id(path: str) -> str:
    """The last id of the path: with kind, the node itself is a container, and its id stands first."""
    last = path.rpartition("/")[2]
    ids = _CONTAINER.findall(path)
    return ids[-1] if ids and not _MONITOR.match(last) else ""


def _slurm_job(path: str) -> str:
    match = _SLURM.search(path)
    return (match[1] or match[2]) if match else ""


_REMEMBERED: Final = 8192
"""Processes. The one that was asked for least lately is forgotten first."""
_CHECKED_AGAIN: Final = 10.0
"""Seconds after which a process without a known creation time is read again: its pid may be another's now."""
_BOOT_KNOWN: Final = 10.0
"""Seconds until the start of the machine is read again."""
_LONGEST_FILE: Final = 1 << 20
_TOLERANCE: Final = 5.0
"""Seconds between two readings of one creation time: the clock may have been set meanwhile."""


class ProcessKey(NamedTuple):
    """A process, as its points have it."""

    pid: int
    created: str = ""
    """`process.creation.time`. Empty for points of NVML, which have none."""


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """The place of a process, and whether it names its job itself."""

    container: ContainerPlace = field(default_factory=ContainerPlace)
    names_job: bool = True
    """Whether its environment has the id of its job, from a scheduler or the user. True if it cannot be read."""
    read_at: float = 0.0
    """Seconds of the monotonic clock."""
    was_read: bool = False
    """False if the process had ended before."""


class ProcessPlaces:
    """Reads the places of processes, and remembers them after the processes have ended."""

    def __init__(self, proc: Path, monotonic: Callable[[], float]) -> None:
        self._proc = proc
        self._monotonic = monotonic
        self._known: OrderedDict[ProcessKey, ProcessPlace] = OrderedDict()
        self._booted = (float("-inf"), 0.0)
        """The start of the machine, and when it was read: reading it takes milliseconds on large machines."""

    def missing(self, key: ProcessKey) -> bool:
        """Whether the process has to be read."""
        known = self._known.get(key)
        return known is None or (not key.created and self._monotonic() - known.read_at > _CHECKED_AGAIN)

    def known(self, key: ProcessKey) -> ProcessPlace:
        """The place of a process. An empty one if it could not be read."""
        if place := self._known.get(key):
            self._known.move_to_end(key)
            return place
        return ProcessPlace()

    def read(self, key: ProcessKey) -> ProcessPlace | None:
        """Reads a process, for a thread. None if it has ended, or another one has its pid."""
        folder = self._proc / str(key.pid)
        try:
            if key.created and not self._was_created(folder, key.created):
                return None
            container = place_of(_text(folder / "cgroup"), _text(folder / "mountinfo"))
        except OSError:
            return None
        return ProcessPlace(container, names_own_job(_environment(folder)), self._monotonic(), True)

    def remember(self, key: ProcessKey, place: ProcessPlace | None) -> None:
        """Remembers the result of `read`. What is known about a process stays when it has ended."""
        self._known[key] = place or replace(self.known(key), read_at=self._monotonic())
        self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _was_created(self, folder: Path, created: str) -> bool:
        """Whether the process with this pid was created at that time: an SDK in a container has other pids."""
        wanted = None
        with suppress(ValueError):
            wanted = datetime.fromisoformat(created)
        if wanted is None:
            return False
        ticks = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[19])  # starttime, proc(5) stat
        started = self._boot_time() + ticks / os.sysconf("SC_CLK_TCK")
        return abs(wanted.replace(tzinfo=wanted.tzinfo or UTC).timestamp() - started) < _TOLERANCE

    def _boot_time(self) -> float:
        """Seconds since 1970. It changes when the clock is set."""
        now = self._monotonic()
        if now - self._booted[0] > _BOOT_KNOWN:
            self._booted = (now, _booted(self._proc))
        return self._booted[1]


def _booted(proc: Path) -> float:
    """Seconds since 1970 at which the machine started: `btime` of proc(5) `stat`, in whole seconds."""
    for line in _text(proc / "stat").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    raise OSError(f"{proc}/stat has no btime")


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(_LONGEST_FILE).decode("utf-8", "surrogateescape")


def _environment(folder: Path) -> Mapping[str, str] | None:
    """The variables that name a job. None if they cannot be read."""
    try:
        pairs = (pair.partition("=") for pair in _text(folder / "environ").split("\0"))
    except OSError:
        return None
    return {name: value for name, _, value in pairs if name in JOB_VARIABLES}
