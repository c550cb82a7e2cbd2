"""The number of a step: that of its first collective on the largest communicator."""

from otel_zernel_libraries.training.interval_spans import CollectiveSpan
from otel_zernel_processors.phases.alignment.rank_step import CollectiveNumber, RankSteps, first_number
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


def collective(sequence: int, size: int, address: str, shared: str = "") -> ThreadInterval:
    made = CollectiveSpan(
        "all_reduce",
        thread=1,
        start_ns=10,
        end_ns=20,
        timing_source="host_enqueue",
        bytes=8,
        communicator=address,
        shared_communicator=shared,
        sequence=sequence,
        world_size=size,
    )
    return ThreadInterval(20, 10, 1, "collective", "all_reduce", collective=made)


def closed(*collectives: ThreadInterval, issued: int = 0) -> ClosedStep:
    load = ThreadInterval(90, 80, 1, "data_loading", "load", issued=issued)
    return ClosedStep(Step(0, 90, "training", [load]), list(collectives), [], 0)


def test_the_largest_communicator_counts() -> None:
    step = closed(collective(70, 2, "0x1"), collective(12, 8, "0x2", "ab"), collective(11, 8, "0x2", "ab"))
    assert first_number(step) == CollectiveNumber(8, 11, "ab")


def test_the_highest_number_counts_among_equally_large_communicators() -> None:
    step = closed(
        collective(11, 8, "0x1"), collective(12, 8, "0x1"), collective(30, 8, "0x2"), collective(31, 8, "0x2")
    )
    assert first_number(step) == CollectiveNumber(8, 30, "")


def test_collectives_without_a_number_give_none() -> None:
    assert first_number(closed(collective(0, 8, "0x1"))) is None
    assert first_number(closed()) is None


def test_without_nccl_the_collectives_that_a_process_has_issued_give_the_number() -> None:
    steps = RankSteps()
    found = [steps.next(closed(issued=issued)).collective for issued in (3, 5, 5, 9, 0, 11, 13)]
    assert found == [
        None,  # it may have begun before the first collective
        CollectiveNumber(0, 4, ""),
        None,
        CollectiveNumber(0, 6, ""),
        None,
        None,  # unknown before this step
        CollectiveNumber(0, 12, ""),
    ]


def test_two_groups_of_one_size_never_give_two_steps_the_same_number() -> None:
    steps = RankSteps()
    found = [steps.next(closed(issued=issued)).collective for issued in (100, 104, 7, 108, 8, 9, 112)]
    assert [one and one.sequence for one in found] == [None, 101, None, 105, None, None, 109]


def test_a_new_group_that_replaces_another_gives_the_numbers() -> None:
    steps = RankSteps()
    found = [steps.next(closed(issued=issued)).collective for issued in (100, *range(2, 22, 2))]
    assert [one and one.sequence for one in found] == [*[None] * 10, 19]
