"""The ledger of a thread whose spans have snapshots: each planted wait has its position and its activity."""

from collections import Counter
from itertools import pairwise

import pytest

from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent, collective_event
from otel_zernel_processors.phases.alignment.rank_step import RankSteps
from otel_zernel_processors.phases.results.energy import EnergyHistory
from otel_zernel_processors.phases.results.totals import Totals
from otel_zernel_processors.phases.scopes.timeline import Timeline
from tests.processors.phases.scopes.counted_thread import CountedThread, ledger_of
from tests.processors.phases.training import MS, START

STEPS = 20
WAITS = ("cpu_wait", "gil", "file", "socket", "pipe", "lock", "child", "timer", "fault", "swap")


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_in_a_dataloader_is_a_load(wait: str) -> None:
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 1, {wait: 5})
        thread.train()
    assert ledger_of(thread.closed())[Position.LOAD, Activity(wait)] == pytest.approx(5 * STEPS)


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_in_a_pass_is_no_load(wait: str) -> None:
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 1)
        thread.scope("forward", 5, {wait: 5})
        thread.scope("backward", 12)
        thread.scope("optimizer", 4)
    spent = ledger_of(thread.closed())
    assert spent[Position.FORWARD, Activity(wait)] == pytest.approx(5 * STEPS, rel=0.06)
    assert (Position.LOAD, Activity(wait)) not in spent


def test_a_wait_for_a_thread_with_a_dataloader_is_a_load() -> None:
    """The training thread has time to make a batch itself."""
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 2, {"lock": 9}, number=2)
        thread.train()
    spent = ledger_of(thread.closed())
    assert spent[Position.LOAD, Activity.LOCK] == pytest.approx(9 * STEPS, rel=0.06)


@pytest.mark.parametrize("has_pass", [False, True], ids=["nothing else", "a pass"])
def test_the_iterator_of_the_next_epoch_is_a_load_and_the_time_before_is_between(has_pass: bool) -> None:
    thread = CountedThread()
    epochs = 4
    for _ in range(epochs):
        for _ in range(5):
            thread.scope("data_loading", 4)
            thread.train()
        thread.scope("data_loading", 0.1)  # the end of the data
        if has_pass:
            thread.scope("inference", 3, is_open=False)
        thread.spend(6)
        thread.scope("batch", 0.01, count=1)
        thread.spend(12, {"child": 2}, forks=2)
    thread.scope("data_loading", 4)
    thread.train()
    spent = ledger_of(thread.closed())
    assert spent[Position.BETWEEN, Activity.PYTHON] == pytest.approx(6 * epochs, rel=0.05)
    assert spent[Position.LOAD, Activity.CHILD] == pytest.approx(2 * epochs, rel=0.02)
    assert (Position.AFTER_STEP, Activity.CHILD) not in spent


def test_short_environment_steps_in_one_region_without_gradients_are_no_pass() -> None:
    call = 0.012  # from the call of the model to its first operator, and in its last one
    thread = CountedThread()
    for _ in range(6):
        for number in range(30):
            thread.scope("inference", 0.3, is_open=number < 29)
            thread.spend(0.6)
        thread.train()
    spent = ledger_of(thread.closed())
    assert spent[Position.ENVIRONMENT, Activity.PYTHON] == pytest.approx(6 * 30 * (0.6 - call), rel=0.01)
    assert spent[Position.INFERENCE, Activity.OPERATOR] == pytest.approx(6 * 30 * (0.3 + call), rel=0.01)


def test_random_numbers_of_an_environment_are_no_batch() -> None:
    thread = CountedThread()
    for _ in range(6):
        for _ in range(8):
            thread.scope("inference", 1, is_open=False)
            thread.scope("batch", 0.1)
            thread.spend(3)
        thread.train()
    assert not [at for at in ledger_of(thread.closed()) if at[0] is Position.LOAD]


@pytest.mark.parametrize("average", ["update", "in_place"])
@pytest.mark.parametrize("has_loader", [True, False])
def test_updates_after_the_optimizer_are_an_average(average: str, has_loader: bool) -> None:
    """Changes before it clip gradients, and few changes after it are a metric."""
    thread = CountedThread()
    for number in range(STEPS):
        if has_loader:
            thread.scope("data_loading", 1)
        thread.scope("forward", 10)
        thread.scope("backward", 12)
        thread.scope("in_place", 2)
        thread.scope("optimizer", 4)
        if number % 4:
            thread.scope("zero_grad", 1)
            thread.spend(2)
            thread.scope(average, 3)
            thread.spend(2)
            thread.scope("in_place", 1, count=2)
    if has_loader:
        thread.scope("data_loading", 1)
    steps = thread.closed()
    spent = ledger_of(steps)
    times = {at.value: sum(time for (of, _), time in spent.items() if of is at) / STEPS for at in Position}
    rounded = {position: pytest.approx(time, abs=0.3) for position, time in times.items() if time > 0.3}
    averaged = {"average": 3 * 3 / 4, "after_step": 5 * 3 / 4, "zero_grad": 3 / 4, "clip": 2, "optimizer": 4}
    assert rounded == {"forward": 10, "backward": 12, **averaged, **({"load": 1} if has_loader else {})}
    assert sum(step.step.kind == "training" for step in steps) == pytest.approx(STEPS, abs=1)


@pytest.mark.parametrize("has_loader", [True, False])
def test_tensors_that_change_after_a_backward_pass_are_the_update_without_an_optimizer(
    has_loader: bool,
) -> None:
    thread = CountedThread()
    for _ in range(STEPS):
        if has_loader:
            thread.scope("data_loading", 1)
        thread.scope("forward", 10)
        thread.scope("backward", 12)
        thread.scope("in_place", 4)
    steps = thread.closed()
    assert ledger_of(steps)[Position.OPTIMIZER, Activity.OPERATOR] == pytest.approx(4 * STEPS, abs=4)
    assert sum(step.step.kind == "training" for step in steps) == pytest.approx(STEPS, abs=1)


def test_the_samples_of_later_steps_divide_the_gaps_of_the_first_ones() -> None:
    """A report of 10 ms, and a batch of 30 ms. The sampler begins after 20 steps."""
    thread = CountedThread()
    for step in range(2 * STEPS):
        before, after = (6, 2) if step >= STEPS else (0, 0)
        thread.train()
        thread.spend(10, sampled_after=after)
        thread.spend(30, sampled_before=before)
    thread.train()
    spent = ledger_of(thread.closed())
    assert spent[Position.LOAD, Activity.PYTHON] == pytest.approx(30 * 2 * STEPS, rel=0.06)
    assert spent[Position.AFTER_STEP, Activity.PYTHON] == pytest.approx(10 * 2 * STEPS, rel=0.06)


def test_a_rare_report_has_its_own_samples() -> None:
    """Each fifth report takes 40 ms, and the others nothing. Each batch takes 30 ms."""
    thread = CountedThread()
    for step in range(3 * STEPS):
        is_long = step % 5 == 4
        thread.train()
        thread.spend(40 if is_long else 0.01, sampled_after=8 if is_long else 0)
        thread.spend(30, sampled_before=6)
    thread.train()
    spent = ledger_of(thread.closed())
    assert spent[Position.LOAD, Activity.PYTHON] == pytest.approx(30 * 3 * STEPS, rel=0.06)
    assert spent[Position.AFTER_STEP, Activity.PYTHON] == pytest.approx(40 * 3 * STEPS / 5, rel=0.06)


def test_steps_wait_no_longer_for_samples_that_do_not_come() -> None:
    thread = CountedThread()
    for _ in range(200):
        thread.train()
        thread.spend(40)
    timeline = Timeline(MS // 2, 10_000)
    for interval in thread.intervals:
        timeline.add(interval)
    last = thread.intervals[-1].end
    closed = [*timeline.advance(START + 1_500 * MS)]
    assert not closed
    closed = [*timeline.advance(last)]
    assert closed
    assert closed[-1].step.end > last - 200 * MS


def test_a_loss_voids_the_time_between_the_marks_around_it() -> None:
    """The activities stay known."""
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 5)
        thread.spend(2, {"timer": 8})
        thread.scope("backward", 12)
        thread.scope("optimizer", 4)
    thread.scope("data_loading", 5)
    step = 5 + 10 + 12 + 4
    spent = ledger_of(thread.closed(((3 * step + 7, 3 * step + 8), (5 * step + 17, 5 * step + 19))))
    assert {at: lasts for at, lasts in spent.items() if at[0] is Position.UNKNOWN} == {
        (Position.UNKNOWN, Activity.TIMER): 8,
        (Position.UNKNOWN, Activity.PYTHON): 2,
    }


@pytest.mark.parametrize(("lasts", "compiles"), [(3000, True), (300, False)])
def test_a_first_step_of_twenty_times_those_after_it_compiles(lasts: float, compiles: bool) -> None:
    thread = CountedThread()
    thread.scope("data_loading", 1)
    thread.spend(lasts)
    for _ in range(8):
        thread.train()
        thread.scope("data_loading", 1)
    spent = ledger_of(thread.closed())
    compiled = sum(time for (position, _), time in spent.items() if position is Position.COMPILE)
    assert compiled == pytest.approx(lasts + 22 if compiles else 0)


def test_an_optimizer_that_nothing_shows_comes_after_the_last_backward_pass() -> None:
    """PyTorch's compiler leaves out the profiler's scope."""
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 1)
        thread.scope("forward", 10)
        thread.scope("backward", 12)
        thread.spend(6)
    thread.scope("data_loading", 1)
    steps = thread.closed()
    assert [step.step.kind for step in steps[1:]] == ["training"] * STEPS
    assert ledger_of(steps)[Position.OPTIMIZER, Activity.PYTHON] == pytest.approx(6 * STEPS)


def test_gradients_that_accumulate_before_the_first_optimizer_are_no_step() -> None:
    thread = CountedThread()
    for number in range(16):
        thread.scope("data_loading", 1)
        thread.scope("forward", 10)
        thread.scope("backward", 12)
        if number % 4 == 3:
            thread.scope("optimizer", 4)
    kinds = [one.step.kind for one in thread.closed()][1:-1]
    assert kinds == [*["accumulation"] * 3, "training"] * 3 + ["accumulation"] * 3


def test_what_happens_in_a_step_is_counted() -> None:
    thread = CountedThread()
    for _ in range(3):
        thread.scope("data_loading", 1, name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
        for _ in range(2):
            thread.scope("forward", 10)
            thread.scope("backward", 12, collectives=4)
        thread.scope("optimizer", 4)
    thread.scope("data_loading", 1)
    events = thread.closed()[2].events
    assert events == {
        StepEvent("worker_batch"): 1,
        StepEvent("backward"): 2,
        StepEvent("optimizer"): 1,
        StepEvent("collective", Position.BACKWARD): 8,
    }


@pytest.mark.parametrize(("forks", "place"), [(2, Position.LOAD), (0, Position.AFTER_STEP)], ids=["workers", "none"])
def test_an_iterator_with_workers_is_made_for_the_load_after_it(forks: int, place: Position) -> None:
    """It draws a seed, and starts its workers. Other code draws a random number, too."""
    thread = CountedThread()
    for _ in range(STEPS):
        thread.train()
        thread.scope("batch", 0.01, count=1)
        thread.spend(20, forks=forks)
        thread.scope("data_loading", 3)
    steps = thread.closed()
    assert ledger_of(steps)[place, Activity.PYTHON] >= 20 * (STEPS - 1)
    made = {StepEvent("iterator"): 1, StepEvent("worker_start"): forks} if forks else {}
    events = steps[5].events
    assert {event: count for event, count in events.items() if event.name in ("iterator", "worker_start")} == made


def test_a_random_number_right_before_a_load_is_no_iterator() -> None:
    thread = CountedThread()
    for _ in range(STEPS):
        thread.train()
        thread.scope("batch", 0.01, count=1)
        thread.spend(0.1)
        thread.scope("data_loading", 3)
    assert StepEvent("iterator") not in thread.closed()[5].events


def test_every_view_of_the_ledger_counts_waits_for_other_ranks() -> None:
    """NCCL's calls in a backward pass have no spans. Energy, transitions, meetings and phases agree about them."""
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 2)
        thread.scope("forward", 5)
        thread.scope("backward", 3, {"collective": 17})
        thread.scope("optimizer", 4)
    steps = thread.closed()
    history, totals, ranks = EnergyHistory(), Totals(6), RankSteps()
    spent: Counter[str] = Counter()
    for closed in steps:
        history.add(closed.attribution.segments)
        totals.add_step(closed)
        spent.update(closed.attribution.phase_ns())
    shares = history.shares(steps[0].step.start, steps[-1].step.end)
    assert {phase: share * spent.total() for phase, share in shares.items() if share} == pytest.approx(dict(spent))
    assert spent["nccl_collective"] == 17 * STEPS * MS
    assert totals.transitions["scopes"] >= 4 * (STEPS - 1)
    meetings = [ranks.next(closed).met for closed in steps if closed.step.trains]
    backwards = [interval.end for interval in thread.intervals if interval.kind == "backward"]
    assert meetings == backwards


def test_names_of_operations_that_a_sender_invents_are_one_event() -> None:
    events = {collective_event(Position.BACKWARD, f"mine {number}", 8) for number in range(99)}
    assert events == {StepEvent("collective", Position.BACKWARD, "other", "small")}


def test_segments_of_a_step_fill_it_and_so_do_their_activities() -> None:
    thread = CountedThread()
    for _ in range(STEPS):
        thread.train()
        thread.spend(1, {"timer": 2, "file": 3, "cpu_wait": 1}, read=9000)
    steps = list(thread.closed())
    assert len(steps) >= STEPS - 1
    for closed in steps:
        segments = closed.attribution.segments
        assert all(one.end == other.start for one, other in pairwise(segments))
        assert sum(spent for segment in segments for _, spent in segment.spent) == closed.step.end - closed.step.start
        assert sum(closed.attribution.phase_ns().values()) == closed.step.end - closed.step.start
        assert max(segment.end - segment.start for segment in segments) <= 12 * MS
