"""The lines of a process, from its records to the state of a reader."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from otel_zernel.batch import Batch
from otel_zernel.testing import Dropped, FakeClock
from otel_zernel_libraries.conditions.values import to_any_value
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import Cause, CauseName
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, Segment
from otel_zernel_libraries.training.stacks import STACKS, CodeLine, ProcessStacks, StackTime
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.results.code import CodeHistory
from otel_zernel_processors.phases.scopes.steps import Step
from tests.libraries.training.made_stacks import BACKWARD, LOOP, MAIN, line, stack_time, stacks_of
from tests.otlp import meaning_of_profiles
from tests.processors.phases.processing import answer_in, dropped, feed, make, make_at, process_in, run
from tests.processors.phases.results.test_device import STEP, STEPS, spans_of_thread, trained
from tests.processors.phases.training import MS, START, batch_of, records_batch, resource_of

READ = line(12, "Corpus.read", "/home/me/run/corpus.py")
LOG = line(31, "log")
SECOND = 1000 * MS
SECONDS = round(STEPS * STEP)


def record(stacks: ProcessStacks, second: float) -> LogRecord:
    """The record of these stacks, so many seconds after the start."""
    time = START + round(second * SECOND)
    return LogRecord(time_unix_nano=time, event_name=semconv.PROCESS_STACKS, body=STACKS.write(stacks))


def records(*made: LogRecord) -> Batch:
    """The records of the process, as a receiver sends them."""
    return records_batch(made, resource_of())


def each_second(*times: tuple[StackTime, Sequence[CodeLine]]) -> Sequence[LogRecord]:
    """A record a second with the same stacks."""
    return [record(stacks_of(times), second) for second in range(1, SECONDS + 1)]


FILE_AND_TIMER = (
    stack_time(0.2, Activity.FILE, "data_loading", READ, LOOP, MAIN, is_inside=True),
    stack_time(0.5, Activity.TIMER, "optimizer", LOG, LOOP, MAIN),
    stack_time(0.1, Activity.OPERATOR, "backward", BACKWARD, LOOP, MAIN, is_inside=True),
)
"""In a second: as much as `trained` reads a file and sleeps."""


def causes_of(*batches: Batch) -> Sequence[Cause]:
    """The causes that a reader of the reports sees at their end."""
    return answer_in(run(*batches)).causes


def test_each_cause_names_its_line_with_its_seconds_a_step() -> None:
    spans = batch_of(spans_of_thread(trained(launches=0, sync="")))
    causes = causes_of(Batch.join([spans, records(*each_second(*FILE_AND_TIMER))]))
    by_activity = {cause.activity: cause for cause in causes if cause.cause is CauseName.SEGMENT}
    reads, sleeps = by_activity[Activity.FILE], by_activity[Activity.TIMER]
    assert reads.code == ("corpus.py:12 Corpus.read",)
    assert reads.lines[0].seconds == pytest.approx(0.008, rel=0.1)
    assert sleeps.code == ("train.py:31 log",)
    assert sleeps.lines[0].seconds == pytest.approx(0.02, rel=0.1)


def test_without_records_a_cause_has_no_lines() -> None:
    causes = causes_of(batch_of(spans_of_thread(trained(launches=0, sync=""))))
    assert causes
    assert not any(cause.code or cause.lines for cause in causes)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_the_stacks_by_position_are_emitted_on_request(is_wanted: bool) -> None:
    spans = batch_of(spans_of_thread(trained(launches=0, sync="")))
    process = process_in(run(Batch.join([spans, records(*each_second(*FILE_AND_TIMER))]), code=is_wanted))
    assert bool(process.code) is is_wanted
    if is_wanted:
        reads = sum(stack.seconds for stack in process.code.stacks if stack.position is Position.LOAD)
        assert reads / process.code.seconds == pytest.approx(0.2, rel=0.1)


def test_profiles_have_the_time_of_each_record_once() -> None:
    spans = batch_of(spans_of_thread(trained(launches=0, sync="")))
    batches = run(Batch.join([spans, records(*each_second(*FILE_AND_TIMER))]), profiles=True, interval="1s")
    profiles = [profile for batch in batches for profile in meaning_of_profiles(batch.profiles)]
    waits = [profile for profile in profiles if profile[1][0] == "off_cpu"]
    assert len(waits) > 1
    assert {attributes["process.pid"] for attributes, *_ in profiles} == {42}
    times = [(start, start + duration) for _, _, (start, duration, _), _ in waits]
    assert all(end == start for (_, end), (start, _) in pairwise(times))
    sums: Counter[tuple[str, str]] = Counter()
    for *_, samples in profiles:
        for lines, attributes, (time,) in samples:
            sums[lines[0][0], attributes["zernel.position"]] += time
    wanted = {("Corpus.read", "load"): 0.2, ("log", "after_step"): 0.5, ("Tensor.backward", "backward"): 0.1}
    for key, seconds in wanted.items():
        assert sums[key] / 1e9 == pytest.approx(seconds * SECONDS, rel=0.15), key


def test_records_of_stacks_are_consumed_and_all_others_pass() -> None:
    other = LogRecord(time_unix_nano=START, event_name="zernel.gpu.error")
    batch = records(*each_second(*FILE_AND_TIMER)[:2], other)
    (passed,) = make().process(batch)
    (resource,) = passed.logs.resource_logs
    assert list(resource.scope_logs[0].log_records) == [other]
    assert list(make().process(records(record(ProcessStacks(), 1)))) == []


def test_pass_through_forwards_them() -> None:
    batch = records(record(ProcessStacks(), 1))
    (passed,) = make(pass_through=True).process(batch)
    assert passed.bytes_of("logs") == batch.bytes_of("logs")


def test_a_malformed_record_is_counted_and_loses_no_other() -> None:
    broken = LogRecord(time_unix_nano=START, event_name=semconv.PROCESS_STACKS, body=to_any_value({"lines": 3}))
    early = LogRecord(event_name=semconv.PROCESS_STACKS, body=STACKS.write(ProcessStacks()))
    processor = make()
    spans = spans_of_thread(trained(launches=0, sync=""))
    made = records(broken, early, *each_second(*FILE_AND_TIMER))
    out = feed(processor, [Batch.join([batch_of(spans), made])])
    assert dropped(processor) == {"malformed_span": 1, "invalid": 1}
    assert any(cause.code for cause in answer_in(out).causes)


def test_stacks_of_a_process_that_is_not_followed_are_counted_and_are_no_loss() -> None:
    reader = InMemoryMetricReader()
    processor = make_at(FakeClock(), MeterProvider([reader]).get_meter("test"))
    assert feed(processor, [records(record(stacks_of(FILE_AND_TIMER), 1))]) == []
    assert dropped(processor) == {}
    data = reader.get_metrics_data()
    assert data
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "zernel.phases.stacks.without_step"
    assert [point.value for point in metric.data.data_points if isinstance(point, NumberDataPoint)] == [3]


FORWARD, LOAD, AFTER = (MOMENTS[one][Activity.TIMER] for one in (Position.FORWARD, Position.LOAD, Position.AFTER_STEP))


def step_of(number: int) -> tuple[Step, list[Segment]]:
    """A step of 100 ms on thread 1: 10 ms of a load, then sleeps: 30 in forward, and after the optimizer 45 that are
    `after_step` and 15 that are `load`."""
    begin = START + number * 100 * MS
    intervals = [
        ThreadInterval(begin + 10 * MS, begin, 1, "data_loading", "x"),
        ThreadInterval(begin + 40 * MS, begin + 40 * MS, 1, "optimizer", "x"),
        ThreadInterval(begin + 90 * MS, begin + 20 * MS, 2, "sync", "another thread"),
    ]
    cuts = [
        (0, 10, MOMENTS[Position.LOAD][Activity.FILE]),
        (10, 40, FORWARD),
        (40, 85, AFTER),
        (85, 100, LOAD),
    ]
    segments = [Segment(begin + start * MS, begin + end * MS, moment) for start, end, moment in cuts]
    return Step(begin, begin + 100 * MS, "training", intervals, thread=1), segments


def history_of(*steps: int, drop: Dropped | None = None, window: int = 60 * SECOND) -> CodeHistory:
    """With the steps of these numbers."""
    history = CodeHistory(window, drop or Dropped(), is_expected=True)
    for number in steps:
        history.add_step(*step_of(number))
    return history


def joined(*times: tuple[StackTime, Sequence[CodeLine]]) -> dict[Position, float]:
    """The seconds of stacks by position, after a second of steps."""
    history = history_of()
    history.add(stacks_of(times), START + 1000 * MS)
    for number in range(10):
        history.add_step(*step_of(number))
    spent: dict[Position, float] = {}
    for stack in history.times.stacks:
        spent[stack.position] = spent.get(stack.position, 0.0) + stack.seconds
    assert history.times.seconds == pytest.approx(1.0)
    return {position: seconds for position, seconds in spent.items() if seconds}


AS_THE_LEDGER = {Position.AFTER_STEP: 0.75, Position.LOAD: 0.25}
POSITIONS = {
    "a mark and an activity": (stack_time(1.0, Activity.TIMER, "data_loading", LOG), {Position.FORWARD: 1.0}),
    "divided as the ledger divides the time after the mark": (
        stack_time(1.0, Activity.TIMER, "optimizer", LOG),
        AS_THE_LEDGER,
    ),
    "an activity that the ledger did not see": (stack_time(1.0, Activity.SOCKET, "optimizer", LOG), AS_THE_LEDGER),
    "a mark that no step has": (stack_time(1.0, Activity.TIMER, "zero_grad", LOG), {Position.UNKNOWN: 1.0}),
    "a mark of another thread": (
        stack_time(1.0, Activity.TIMER, "optimizer", LOG, thread=7),
        {Position.UNKNOWN: 1.0},
    ),
    "a worker, whatever the training thread does": (
        stack_time(1.0, Activity.PYTHON, "", LOG, thread=0, worker=9),
        {Position.LOAD: 1.0},
    ),
}


@pytest.mark.parametrize(("stack", "positions"), POSITIONS.values(), ids=POSITIONS)
def test_a_stack_has_the_positions_of_its_mark_and_activity(
    stack: tuple[StackTime, Sequence[CodeLine]], positions: dict[Position, float]
) -> None:
    assert joined(stack) == pytest.approx(positions)


def test_a_record_counts_once_the_steps_of_its_time_are_known() -> None:
    history = history_of()
    history.add(stacks_of([stack_time(1.0, Activity.TIMER, "optimizer", LOG)]), START + 2 * SECOND)
    history.add_step(*step_of(0))
    assert not history.times
    history.finish()
    assert history.times.seconds == pytest.approx(0.1)


def test_without_the_option_the_first_record_shows_that_others_follow() -> None:
    history = CodeHistory(60 * SECOND, Dropped())
    stacks = stacks_of([stack_time(0.05, Activity.TIMER, "optimizer", LOG)])
    for number in range(3):
        history.add_step(*step_of(number))
        history.add(stacks, START + (number + 1) * 100 * MS)
    history.add_step(*step_of(3))
    assert history.times.seconds == pytest.approx(0.2)
    assert sum(stack.seconds for stack in history.times.stacks) == pytest.approx(0.1)
    assert (history.take_without_step(), history.take_without_step()) == (1, 0)


def test_stacks_from_before_the_first_step_are_counted() -> None:
    history = history_of()
    stacks = stacks_of([stack_time(0.1, Activity.TIMER, "optimizer", LOG), stack_time(0.1, Activity.FILE, "", READ)])
    history.add(stacks, START - SECOND)
    history.add(stacks, START + 50 * MS)
    history.add_step(*step_of(0))
    assert sum(stack.seconds for stack in history.times.stacks) == pytest.approx(0.2)
    assert history.take_without_step() == 2


def test_the_time_after_the_last_step_is_not_covered() -> None:
    history = history_of(*range(5))
    history.add(stacks_of([stack_time(0.1, Activity.TIMER, "optimizer", LOG)]), START + 9 * SECOND)
    history.finish()
    assert history.times.seconds == pytest.approx(0.5)


def test_stacks_older_than_the_window_are_forgotten() -> None:
    history = history_of(window=SECOND)
    for number, name in enumerate(("old", "new")):
        stacks = stacks_of([stack_time(1.0, Activity.TIMER, "optimizer", line(1, name))])
        history.add(stacks, START + (number * 3000 + 100) * MS)
        for at in range(5):
            history.add_step(*step_of(number * 30 + at))
    assert {stack.lines[0].function for stack in history.times.stacks} == {"new"}


def test_more_stacks_than_there_is_room_for_are_counted() -> None:
    drop = Dropped()
    history = history_of(0, drop=drop)
    for number in range(5):
        made = [stack_time(0.1, Activity.TIMER, "optimizer", line(500 * number + at)) for at in range(500)]
        history.add(stacks_of(made), START + (number + 1) * 100 * MS)
        history.add_step(*step_of(number))
    assert len({stack.lines for stack in history.times.stacks}) == 1_024
    assert drop.counts == {"max_stacks": 5 * 500 - 1_024}


def test_a_stack_with_lines_that_its_record_lacks_is_ignored() -> None:
    (time, _) = stack_time(1.0, Activity.TIMER, "optimizer", LOG, LOG)
    history = history_of()
    history.add(ProcessStacks(lines=(), stacks=(time,)), START + MS)
    history.add_step(*step_of(0))
    assert not history.times
