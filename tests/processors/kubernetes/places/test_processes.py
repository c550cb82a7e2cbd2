"""The places of processes: read once, kept after the end, and never those of another process with the same pid.

The pod and the container of a process, from the files that real runtimes make.

A thread reads processes. One that is stuck holds up no batch.
"""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.testing import FakeClock, until
from otel_zernel_processors.kubernetes.places.processes import (
    ContainerPlace,
    ProcessKey,
    ProcessPlace,
    ProcessPlaces,
    place_of,
)
from otel_zernel_processors.kubernetes.sources import PlaceReader
from tests.processors.kubernetes.tree import ProcTree, created

POD, OTHER = "0a1b2c3d-1111-4222-8333-444455556666", "ffffffff-1111-4222-8333-444455556666"
ID = "4f" * 32
GROUP = f"/kubepods/pod{POD}/{ID}"


def read(places: ProcessPlaces, key: ProcessKey) -> ProcessPlace:
    places.remember(key, places.read(key))
    return places.known(key)


def places_in(tree: ProcTree, clock: FakeClock | None = None) -> ProcessPlaces:
    return ProcessPlaces(tree.folder, (clock or FakeClock()).monotonic)


def test_a_process_keeps_its_place_when_it_has_ended(tree: ProcTree) -> None:
    key = ProcessKey(7, tree.add(7, cgroup=GROUP, pod=POD, container="trainer"))
    places = places_in(tree)
    assert places.missing(key)
    place = read(places, key)
    assert place.container == ContainerPlace(POD, ID, "trainer")
    assert not places.missing(key)
    tree.end(7)
    assert read(places, key).container == place.container


def test_a_process_with_another_creation_time_is_another_process(tree: ProcTree) -> None:
    """An SDK in a container reports the pid of its own namespace."""
    tree.add(7, started=100, cgroup=GROUP)
    places = places_in(tree)
    assert places.read(ProcessKey(7, created(100.6))) is not None
    assert places.read(ProcessKey(7, created(3000))) is None
    assert places.read(ProcessKey(7, "yesterday")) is None
    assert places.read(ProcessKey(8, created(100))) is None


def test_a_pid_without_a_creation_time_is_read_again_because_it_may_be_anothers(tmp_path: Path) -> None:
    clock, tree = FakeClock(), ProcTree(tmp_path / "proc")
    tree.add(7, cgroup=GROUP, pod=POD, container="a")
    places, key = places_in(tree, clock), ProcessKey(7)
    read(places, key)
    assert not places.missing(key)
    clock.advance(11)
    assert places.missing(key)
    tree.add(7, cgroup=GROUP.replace(POD, OTHER), pod=OTHER, container="b")
    assert read(places, key).container.pod_uid == OTHER
    tree.end(7)
    clock.advance(11)
    assert read(places, key).container.pod_uid == OTHER, "its last points still have a name"
    assert not places.missing(key)


def test_the_environment_says_whether_a_process_names_its_job_itself(tree: ProcTree) -> None:
    environments = {
        1: ({"SLURM_JOB_ID": "9", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, True),
        2: ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,zernel.job.id=mine"}, True),
        3: ({"TORCHELASTIC_RUN_ID": "f00"}, False),
        4: ({"MASTER_ADDR": "trainer-0", "MASTER_PORT": "23456"}, False),
        5: ({}, False),
        6: (None, True),
    }
    places = places_in(tree)
    for pid, (environment, expected) in environments.items():
        key = ProcessKey(pid, tree.add(pid, cgroup=GROUP, environment=environment))
        assert read(places, key).names_job is expected, pid


def test_the_number_of_remembered_processes_is_bounded(tmp_path: Path) -> None:
    places = places_in(ProcTree(tmp_path / "proc"))
    for pid in range(1, 10_000):
        places.remember(ProcessKey(pid, "x"), ProcessPlace())
    assert places.missing(ProcessKey(1, "x"))
    assert not places.missing(ProcessKey(9_999, "x"))


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


async def test_many_processes_are_read_in_parts(tree: ProcTree) -> None:
    keys = [ProcessKey(pid, tree.add(pid, cgroup=GROUP)) for pid in range(1, 400)]
    places = places_in(tree)
    reader = PlaceReader(places)
    await reader.read(keys)
    missing = [key for key in keys if places.missing(key)]
    assert len(missing) == 399 - 256
    await reader.read(missing)
    assert not any(map(places.missing, keys))
    reader.close()


async def test_a_stuck_process_holds_up_neither_the_caller_nor_what_was_read_before(
    tree: ProcTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._HANGS", 0.0)
    first, second = (ProcessKey(pid, tree.add(pid, cgroup=GROUP)) for pid in (1, 2))
    stuck = tmp_path / "proc" / "2" / "environ"
    os.mkfifo(stuck)  # opening it waits for a writer
    places = places_in(tree)
    reader = PlaceReader(places)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read([first, second]), 0.2)
    assert reader.hangs
    await reader.read([second])
    assert places.known(first).container.pod_uid == POD
    assert places.missing(second)
    with stuck.open("wb") as writer:
        writer.write(b"SLURM_JOB_ID=1\0")

    def is_read() -> bool:
        reader.take()
        return not places.missing(second)

    await until(is_read)
    assert places.known(second).container.pod_uid == POD
    reader.close()
