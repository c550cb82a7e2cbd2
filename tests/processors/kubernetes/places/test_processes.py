"""The places of processes: read once, kept after the end, and never those of another process with the same pid."""

from pathlib import Path

from otel_zernel.testing import FakeClock
from otel_zernel_processors.kubernetes.places.processes import ContainerPlace, ProcessKey, ProcessPlace, ProcessPlaces
from tests.processors.kubernetes.tree import ProcTree, created

POD, OTHER = "0a1b2c3d-1111-4222-8333-444455556666", "ffffffff-1111-4222-8333-444455556666"
ID = "4f" * 32
GROUP = f"/kubepods/pod{POD}/{ID}"


def read(places: ProcessPlaces, key: ProcessKey) -> ProcessPlace:
    places.remember(key, places.read(key))
    return places.known(key)


def places_in(tree: ProcTree, clock: FakeClock | None = None) -> ProcessPlaces:
    return ProcessPlaces(tree.folder, (clock or FakeClock()).monotonic)


def test_a_process_keeps_its_place_when_it_has_ended(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    key = ProcessKey(7, tree.add(7, cgroup=GROUP, pod=POD, container="trainer"))
    places = places_in(tree)
    assert places.missing(key)
    place = read(places, key)
    assert place.container == ContainerPlace(POD, ID, "trainer")
    assert not places.missing(key)
    tree.end(7)
    assert read(places, key).container == place.container


def test_a_process_with_another_creation_time_is_another_process(tmp_path: Path) -> None:
    """An SDK in a container reports the pid of its own namespace."""
    tree = ProcTree(tmp_path / "proc")
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


def test_the_environment_says_whether_a_process_names_its_job_itself(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
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
