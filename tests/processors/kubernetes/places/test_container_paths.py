"""The pod and the container of a process, from the files that real runtimes make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_processors.kubernetes.places.processes import ContainerPlace, place_of

ID = "4f" * 32
UID = "0a1b2c3d-1111-4222-8333-444455556666"
UNDERSCORED = UID.replace("-", "_")
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
IN_KIND = f"/docker/{'ab' * 32}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod"
STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        (f"{SLICE}{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope", UID),
        (f"{SLICE}{UNDERSCORED}.slice/docker-{ID}.scope", UID),
        (f"/kubepods/burstable/pod{UID}/{ID}", UID),
        (f"/kubepods/pod{UID}/{ID}", UID),
        (f"/kubepods/besteffort/pod{UID}/crio-{ID}", UID),
        (f"{SLICE}{STATIC}.slice/cri-containerd-{ID}.scope", STATIC),
        (f"{IN_KIND}{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID),
        (f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}", UID),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope/container", UID),
        (f"/../cri-containerd-{ID}.scope", ""),
        (f"/../../pod{UID}/{ID}", UID),
        (f"/system.slice/docker-{ID}.scope", ""),
        (f"/machine.slice/machine-libpod_pod_{'ab' * 32}.slice/libpod-{ID}.scope/container", ""),
        (f"/machine.slice/pod{'ab' * 32}/{ID}", ""),
    ],
)  # fmt: skip
def test_every_runtime_and_driver_is_read(path: str, uid: str) -> None:
    assert place_of(f"0::{path}\n", "") == ContainerPlace(uid, ID)
    version_1 = f"12:pids:{path}\n11:devices:{path}\n1:name=systemd:{path}\n0::/\n"
    assert place_of(version_1, "") == ContainerPlace(uid, ID)


@pytest.mark.parametrize(
    "path",
    ["/", "/user.slice/user-1000.slice/session-3.scope", "/init.scope", f"/machine.slice/libpod-conmon-{ID}.scope",
     f"/kubepods.slice/crio-conmon-{ID}.scope", ""],
)  # fmt: skip
def test_a_process_outside_of_containers_has_no_place(path: str) -> None:
    assert not place_of(f"0::{path}\n", "").container_id


def mount(root: str, point: str) -> str:
    return f"1403 1391 259:1 {root} {point} rw,relatime - ext4 /dev/nvme0n1p1 rw"


def test_the_mounts_of_the_kubelet_have_the_pod_and_the_container_where_the_group_has_neither() -> None:
    """In a control group namespace of its own, the reader sees only the end of the path."""
    folder = f"/var/lib/kubelet/pods/{UID}"
    mounts = [
        "1391 1020 0:310 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/pods/x",
        mount(f"{folder}/etc-hosts", "/etc/hosts"),
        mount(f"{folder}/containers/trainer/0a1b2c3d", "/dev/termination-log"),
    ]
    assert place_of(f"0::/../cri-containerd-{ID}.scope\n", "\n".join(mounts)) == ContainerPlace(UID, ID, "trainer")


def test_a_file_system_of_its_own_for_var_changes_nothing() -> None:
    mounts = mount(f"/lib/kubelet/pods/{STATIC}/containers/etcd/99887766", "/dev/termination-log")
    assert place_of("0::/\n", mounts) == ContainerPlace(STATIC, "", "etcd")


def test_the_volumes_of_other_pods_in_the_container_of_a_node_agent_do_not_name_it() -> None:
    other = UID.replace("0a1b", "ffff")
    mounts = [
        mount(f"/var/lib/kubelet/pods/{other}/volumes/kubernetes.io~empty-dir/data", "/host/data"),
        mount(f"/var/lib/kubelet/pods/{other}/etc-hosts", "/host/var/lib/kubelet/pods/x/etc-hosts"),
        mount(f"/var/lib/kubelet/pods/{UID}/containers/agent/11111111", "/dev/termination-log"),
    ]
    assert place_of("0::/\n", "\n".join(mounts)) == ContainerPlace(UID, "", "agent")


@pytest.mark.parametrize(
    "path", ["/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "/slurm/uid_1000/job_4711/step_batch",
             "/slurm_node7/uid_1000/job_4711/step_0"]
)  # fmt: skip
def test_the_job_of_slurm_is_in_the_group(path: str) -> None:
    assert place_of(f"0::{path}\n", "").slurm_job == "4711"


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_is_read_without_an_error(cgroup: str, mountinfo: str) -> None:
    place_of(cgroup, mountinfo)
