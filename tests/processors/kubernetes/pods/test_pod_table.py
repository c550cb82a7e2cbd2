"""The table of pods: indexes, the names of deleted pods, bounds."""

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.testing import FakeClock
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable


def table(limit: int = 10, retention: float = 60.0, clock: FakeClock | None = None) -> PodTable:
    made = PodTable((clock or FakeClock()).monotonic)
    made.adopt(limit, retention)
    return made


def pod(uid: str, name: str = "p", container: str = "") -> KubernetesPod:
    return KubernetesPod("train", name, uid, containers={container: "c"} if container else {})


def test_a_pod_is_found_by_uid_container_and_name() -> None:
    pods = table()
    pods.put(pod("u1", container="c1"))
    assert pods.by_uid("u1") == pods.by_container("c1") == pods.by_name("train", "p") == pod("u1", container="c1")
    assert pods.by_uid("") is pods.by_container("") is pods.by_name("", "") is None


def test_a_deleted_pod_keeps_its_name_for_a_while() -> None:
    clock = FakeClock()
    pods = table(clock=clock)
    pods.put(pod("u1"))
    pods.delete("u1")
    clock.advance(59)
    pods.expire()
    assert pods.by_uid("u1")
    clock.advance(2)
    pods.expire()
    assert pods.by_uid("u1") is None
    assert pods.forgotten == 0


def test_the_successor_of_a_pod_has_its_name_and_the_uid_still_finds_the_former_one() -> None:
    pods = table()
    pods.put(pod("u1", "trainer-0", "c1"))
    pods.delete("u1")
    pods.put(pod("u2", "trainer-0", "c2"))
    assert pods.by_name("train", "trainer-0") == pod("u2", "trainer-0", "c2")
    assert pods.by_uid("u1") == pods.by_container("c1") == pod("u1", "trainer-0", "c1")


def test_a_restarted_container_is_found_by_its_new_id() -> None:
    pods = table()
    pods.put(pod("u1", container="c1"))
    pods.put(pod("u1", container="c2"))
    assert pods.by_container("c1") is None
    assert pods.by_container("c2") is not None


def test_deleted_pods_are_forgotten_first_and_then_those_used_least_lately() -> None:
    pods = table(limit=3)
    for uid in ("u1", "u2", "u3"):
        pods.put(pod(uid, uid))
    pods.delete("u3")
    pods.put(pod("u4", "u4"))
    assert pods.by_uid("u3") is None
    assert pods.forgotten == 0
    assert pods.by_uid("u1")
    pods.put(pod("u5", "u5"))
    assert pods.by_uid("u2") is None, "u1 was used later"
    assert pods.forgotten == 1


def test_a_new_source_confirms_the_pods_that_still_exist() -> None:
    clock = FakeClock()
    pods = table(clock=clock)
    pods.put(pod("u1", "a"))
    pods.put(pod("u2", "b"))
    pods.adopt(10, 60)
    pods.put(pod("u1", "a"))
    clock.advance(61)
    pods.expire()
    assert pods.by_uid("u1")
    assert pods.by_uid("u2") is None


@given(st.lists(st.tuples(st.sampled_from(["put", "delete", "look", "expire"]), st.integers(0, 12))))
def test_any_order_keeps_the_bound_and_the_indexes(steps: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    pods = table(limit=4, retention=5, clock=clock)
    for action, number in steps:
        clock.advance(1)
        if action == "put":
            pods.put(pod(f"u{number}", f"n{number % 5}", f"c{number}"))
        elif action == "delete":
            pods.delete(f"u{number}")
        elif action == "look":
            pods.by_uid(f"u{number}")
        else:
            pods.expire()
        assert len(pods) <= 4
        for one in range(13):
            by_container = pods.by_container(f"c{one}")
            assert by_container == pods.by_uid(f"u{one}")
            assert by_container is None or by_container.uid == f"u{one}"
        for one in range(5):
            named = pods.by_name("train", f"n{one}")
            assert named is None or named.name == f"n{one}"
