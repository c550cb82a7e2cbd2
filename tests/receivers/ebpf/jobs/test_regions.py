"""Regions without gradients: each is a run, and short ones that follow each other are merged."""

import pytest

from tests.receivers.ebpf.jobs.operator_runs import (
    BACKWARD,
    GRAD_OFF,
    GRAD_ON,
    MILLISECOND,
    Run,
    operators_of,
    ran,
    runs,
    runs_of,
)
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, spans_of


def test_a_pass_without_gradients_lasts_until_they_are_on_again(watch: Watch, standin: Standin) -> None:
    batch, program = ran(watch, standin, [GRAD_OFF, "addmm times=3", "spin work=30000000", GRAD_ON, "addmm", BACKWARD])
    assert runs_of(batch, program) == [Run(3, grad=False, end="region"), Run(1)]
    region = operators_of(batch, program)[0]
    assert region.end_time_unix_nano - region.start_time_unix_nano >= 30 * MILLISECOND


def test_what_follows_the_last_action_of_a_region_is_no_part_of_the_pass(watch: Watch, standin: Standin) -> None:
    region = [GRAD_OFF, "addmm times=3", "multinomial", "spin work=30000000", GRAD_ON, "addmm", BACKWARD]
    batch, program = ran(watch, standin, region)
    assert runs_of(batch, program) == [Run(4, grad=False, end="region"), Run(1)]
    run = operators_of(batch, program)[0]
    assert run.end_time_unix_nano - run.start_time_unix_nano < 30 * MILLISECOND


def test_a_region_without_operators_is_no_run(watch: Watch, standin: Standin) -> None:
    assert runs(watch, standin, *[GRAD_OFF, "spin work=100000", GRAD_ON] * 5) == []


def test_inference_mode_is_a_region_and_may_be_inside_another(watch: Watch, standin: Standin) -> None:
    enter, leave = "inference_mode.__enter__", "inference_mode.__exit__"
    region = [enter, "addmm times=3", "spin work=20000000", leave]
    assert runs(watch, standin, *region, "addmm", BACKWARD) == [Run(3, grad=False, end="region"), Run(1)]
    nested = [GRAD_OFF, "addmm", enter, enter, "addmm", leave, leave, "addmm", "spin work=20000000", GRAD_ON]
    assert runs(watch, standin, *nested) == [Run(3, grad=False, end="region")]


def test_the_end_of_inference_mode_restores_the_gradients_that_a_region_inside_it_left_off(
    watch: Watch, standin: Standin
) -> None:
    enter, leave = "inference_mode.__enter__", "inference_mode.__exit__"
    region = [enter, "addmm times=3", GRAD_ON, GRAD_OFF, "spin work=20000000", leave]
    assert runs(watch, standin, *region, "addmm", BACKWARD) == [Run(3, grad=False, end="region"), Run(1)]
    inside = [GRAD_OFF, enter, "addmm", GRAD_OFF, leave, "addmm times=2", "spin work=20000000", GRAD_ON]
    assert runs(watch, standin, *inside, "addmm", BACKWARD) == [Run(3, grad=False, end="region"), Run(1)]


def test_gradients_that_are_on_for_a_moment_end_no_region(watch: Watch, standin: Standin) -> None:
    """As a lazy property of torch.distributions switches them on. The sample after it belongs to the pass."""
    region = [GRAD_OFF, "addmm times=3", GRAD_ON, GRAD_OFF, "spin work=3000000", "multinomial", GRAD_ON]
    found = runs(watch, standin, *[*region, "addmm", BACKWARD] * 20)
    assert Run(4, grad=False, end="region") in found, "on a busy machine, some are on for longer"


def test_nested_regions_are_one(watch: Watch, standin: Standin) -> None:
    nested = [GRAD_OFF, "addmm", GRAD_OFF, "addmm", "spin work=20000000", GRAD_ON]
    assert runs(watch, standin, *nested) == [Run(2, grad=False, end="region")]


def test_short_regions_that_follow_each_other_are_merged_without_loss(watch: Watch, standin: Standin) -> None:
    rounds = 500
    policy = [GRAD_OFF, "addmm times=2", "spin work=100000", GRAD_ON, "spin work=100000"]
    batch, program = ran(watch, standin, policy * rounds)
    found = [attributes_of(span) for span in operators_of(batch, program)]
    assert sum(int(str(one["zernel_operators_count"])) for one in found) == 2 * rounds
    assert sum(int(str(one.get("zernel_operators_parts", 1))) for one in found) == rounds
    assert len(found) < rounds / 5
    for span in operators_of(batch, program):
        length = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        if time := attributes_of(span).get("zernel_operators_time"):
            assert 0 < float(str(time)) < length


def test_a_region_inside_a_pass_with_gradients_belongs_to_it(watch: Watch, standin: Standin) -> None:
    custom_function = [GRAD_OFF, "addmm times=2", GRAD_ON]
    assert runs(watch, standin, "addmm", *custom_function, "addmm", *custom_function, BACKWARD) == [Run(6)]
    found = runs(watch, standin, *[*custom_function, "addmm times=3", BACKWARD] * 20)
    assert Run(5) in found
    assert set(found) <= {Run(5), Run(2, grad=False, end="region"), Run(3)}, "the machine may pause the program there"


@pytest.mark.parametrize("inside", ["", " null=1"])
def test_the_forward_function_of_a_custom_function_is_a_pass_with_gradients(
    watch: Watch, standin: Standin, inside: str
) -> None:
    """So is a compiled model. Its random numbers are no batch. Activation checkpoints switch gradients off twice."""
    function = f"Function.apply count=4{inside}"
    teacher = [GRAD_OFF, "addmm", "spin work=20000000", GRAD_ON]
    assert runs(watch, standin, function, "mean", BACKWARD, *teacher, function, function, "mean", BACKWARD) == [
        Run(5),
        Run(1, grad=False, end="region"),
        Run(9),
    ]
    in_region = [GRAD_OFF, "addmm", function, "spin work=20000000", GRAD_ON]
    assert runs(watch, standin, *in_region) == [Run(5, grad=False, end="region")]


def test_changes_of_the_grad_mode_inside_backward_do_not_count(watch: Watch, standin: Standin) -> None:
    """Autograd switches gradients off without a call that is seen, and code in backward restores that."""
    backward = f"{BACKWARD} count=1"
    assert runs(watch, standin, "addmm", backward, "addmm times=2", BACKWARD) == [Run(1), Run(2)]


def test_a_long_pause_between_regions_keeps_them_apart(watch: Watch, standin: Standin) -> None:
    region = [GRAD_OFF, "addmm", "spin work=100000", GRAD_ON, "spin work=5000000"]
    assert runs(watch, standin, *region * 3) == [Run(1, grad=False, end="region")] * 3


def test_the_parts_of_merged_regions_have_their_edges(watch: Watch, standin: Standin) -> None:
    policy = [GRAD_OFF, "spin work=50000", "addmm", "spin work=100000", GRAD_ON, "spin work=300000"]
    batch, program = ran(watch, standin, policy * 100)
    merged = [span for span in operators_of(batch, program) if "zernel_operators_parts" in attributes_of(span)]
    assert merged
    for span in merged:
        attributes = attributes_of(span)
        edges = [int(part) for part in str(attributes["zernel_operators_edges"]).split()]
        parts = int(str(attributes["zernel_operators_parts"]))
        assert len(edges) == 2 * parts <= 32
        assert edges == sorted(edges)
        assert edges[0] == 0
        within = sum(end - start for start, end in zip(edges[::2], edges[1::2], strict=True)) / 1e6
        assert within == pytest.approx(float(str(attributes["zernel_operators_time"])), abs=2e-6 * parts)


def test_a_pass_without_gradients_begins_with_its_region(watch: Watch, standin: Standin) -> None:
    def region(work: int) -> list[str]:
        return [BACKWARD, GRAD_OFF, f"spin work={work}", "addmm", GRAD_ON]

    works = [200_000, 400_000, 800_000, 1_600_000] * 4  # on any machine, some are not interrupted for long
    actions = [action for work in [*works, 80_000_000] for action in region(work)]
    batch, program = ran(watch, standin, ["addmm", *actions])
    *regions, last = operators_of(batch, program)[1:]
    lasted = [run.end_time_unix_nano - run.start_time_unix_nano for run in regions]
    assert any(length >= work for length, work in zip(lasted, works, strict=True))
    backward = [span for span in spans_of(batch, program.pid) if span.name == "backward"][-1]
    assert last.start_time_unix_nano - backward.end_time_unix_nano >= 80_000_000, "it begins with its operator"
