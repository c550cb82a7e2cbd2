"""The pod and the container in the paths of /proc/PID/cgroup and /proc/PID/mountinfo. No I/O.

containerd, CRI-O and Docker agree, with cgroup v1 and v2 and both cgroup drivers of the kubelet: a container's id has
64 hexadecimal digits, and the uid of a pod follows `pod` in the path. A static pod has a uid of 32 digits.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

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
        found = _MOUNT.search(fields[3]) if len(fields) > 5 else None
        if found and found["name"]:
            uid, name = found["uid"], found["name"]
        elif found and fields[4] == "/etc/hosts":
            uid = uid or found["uid"]
    return ContainerPlace(pod_uid=uid, container_name=name)


def _pod_uid(path: str) -> str:
    found = _POD.search(path)
    return found[1].replace("_", "-") if found else ""


def _container_id(path: str) -> str:
    """The last id of the path: with kind, the node itself is a container, and its id stands first."""
    last = path.rpartition("/")[2]
    ids = _CONTAINER.findall(path)
    return ids[-1] if ids and not _MONITOR.match(last) else ""


def _slurm_job(path: str) -> str:
    found = _SLURM.search(path)
    return (found[1] or found[2]) if found else ""
