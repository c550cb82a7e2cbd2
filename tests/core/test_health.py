"""The health of the collector says how long a component does not work, and stops when it works again."""

from otel_zernel.batch import ItemCount
from otel_zernel.health import Health, HeldBack, Outage

ONE = ItemCount(points=1)
WAITING = ItemCount(points=1204)


def test_an_outage_lasts_until_now_while_items_wait_and_until_the_last_failure_if_none_do() -> None:
    health = Health()
    health.outages["exporters::a"] = Outage(10.0, 15.0, "refused", lambda: WAITING)
    assert health.longest_outage(100.0) == 90.0
    health.outages["exporters::a"] = Outage(10.0, 15.0, "400 Bad Request", ItemCount)
    assert health.longest_outage(100.0) == 5.0
    assert health.sentences(100.0) == {"exporters::a": "has delivered nothing for 1 m 30 s: 400 Bad Request"}


def test_one_waiting_item_is_singular_and_several_are_plural() -> None:
    one, several = Outage(0.0, 1.0, "refused", lambda: ONE), Outage(0.0, 1.0, "refused", lambda: WAITING)
    assert one.sentence(2.0) == "has delivered nothing for 2 s: refused; 1 metric point is waiting"
    assert several.sentence(2.0) == "has delivered nothing for 2 s: refused; 1,204 metric points are waiting"


def test_a_receiver_whose_sender_has_gone_is_not_held_back() -> None:
    health = Health()
    health.holds["receivers::a"] = HeldBack(0.0, 30.0, "the queue is full")
    assert health.sentences(40.0) == {"receivers::a": "held back for 40 s: the queue is full"}
    assert health.sentences(100.0) == {}


def test_a_problem_and_an_outage_of_one_component_are_both_shown() -> None:
    health = Health()
    health.report("exporters::a", "the file is unusable")
    health.outages["exporters::a"] = Outage(0.0, 1.0, "refused", ItemCount)
    assert health.sentences(2.0) == {"exporters::a": "the file is unusable; has delivered nothing for 2 s: refused"}
    health.forget("exporters::a")
    assert (health.sentences(2.0), health.longest_outage(2.0)) == ({}, 0.0)
