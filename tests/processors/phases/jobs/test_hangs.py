"""A job that hangs: its record, its metric, its span, and its line in the log."""

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.hangs import HANG, JobHang
from otel_zernel_libraries.training.stacks import THREADS, CodeLine, OpenCollective, ProcessThreads, ThreadNow
from tests.libraries.training.hangs.made_ranks import ALL_REDUCE, C10D, LOAD, thread
from tests.processors.phases.processing import dropped, feed, log_records_of, make
from tests.processors.phases.synchronous import Job
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    attributes_of,
    batch_of,
    records_batch,
    resource_of,
    span_of,
    spans_of,
    values_of,
)

BLOCKED = thread("pipe", LOAD, detail="reads /data/x", seconds=30.0)
IN_COLLECTIVE = thread("lock", *ALL_REDUCE, seconds=30.0)


def threads_at(
    at: float, since: float, main: ThreadNow, resource: Resource, sequence: int = 0, *, is_stopped: bool = False
) -> Batch:
    """What a process does `at` ms after START, if it has made no mark `since` then."""
    silent = (at - since) / 1000
    known = [OpenCollective(operation="all_reduce", communicator="w", sequence=sequence, seconds=silent)]
    open_now = tuple(known if sequence else ())
    body = ProcessThreads(silent=silent, is_stopped=is_stopped, threads=(main,), collectives=open_now)
    record = LogRecord(
        time_unix_nano=START + round(at * MS), event_name="zernel.process.threads", body=THREADS.write(body)
    )
    return records_batch([record], resource)


def rank_resource(rank: int, *, first_pid: int = 100) -> Resource:
    return resource_of(first_pid + rank, zernel_rank=rank, zernel_world_size=2, zernel_job_id="bert")


def hung_job(until: float = 25_000) -> Iterator[Batch]:
    """Two ranks that train for about 2 s. Then rank 1 reads a pipe that nobody writes to."""
    job = Job(2).train(60)
    yield from job.in_time()
    last = max(loop.now for loop in job.loops)
    for at in range(int(last) + 5_000, int(until), 1_000):
        yield threads_at(at, last, IN_COLLECTIVE, rank_resource(0), sequence=17)
        yield threads_at(at, last, BLOCKED, rank_resource(1))


def hangs_of(batches: list[Batch], event: str = "zernel.job.hung") -> list[JobHang]:
    return [HANG.read(record.body) for record in log_records_of(batches) if record.event_name == event]


def states_of(batches: list[Batch]) -> list[float]:
    """The values of the metric, without repeats."""
    values = [value for _, value in values_of(batches, "zernel.job.hung")]
    return [value for at, value in enumerate(values) if at == 0 or value != values[at - 1]]


def test_a_hung_job_has_a_record_in_each_report() -> None:
    made = feed(make(), hung_job())
    hangs = hangs_of(made)
    assert len(hangs) > 3
    assert len({hang.since for hang in hangs}) == 1
    first = hangs[0]
    assert [(rank.rank, rank.role) for rank in first.ranks] == [(1, "missing"), (0, "waiting")]
    assert first.ranks[0].code[0] == "train.py:12 load"
    assert first.collective is not None
    assert first.collective.sequence == 17
    (resource,) = {
        tuple(attributes_of(resource_log.resource.attributes).items())
        for batch in made
        for resource_log in batch.logs.resource_logs
    }
    assert dict(resource)["zernel.job.id"] == "bert"


def test_the_records_of_threads_are_consumed_unless_they_pass_through() -> None:
    def events(batches: list[Batch]) -> set[str]:
        return {record.event_name for record in log_records_of(batches)}

    assert "zernel.process.threads" not in events(feed(make(), hung_job()))
    assert "zernel.process.threads" in events(feed(make(pass_through=True), hung_job()))


def test_the_state_is_1_while_the_job_hangs_and_0_after(caplog: pytest.LogCaptureFixture) -> None:
    def goes_on() -> Iterator[Batch]:
        yield from hung_job()
        for rank in range(2):
            yield batch_of([span_of("optimizer", 26_000, 26_004)], rank_resource(rank))
        yield batch_of([span_of("optimizer", 29_000, 29_004)], rank_resource(0))

    with caplog.at_level(logging.INFO):
        made = feed(make(), goes_on())
    assert states_of(made) == [0, 1, 0]
    (span,) = [span for span in spans_of(made) if span.name == "hung"]
    assert span.end_time_unix_nano > START + 20_000 * MS
    assert [event.name for event in span.events] == ["missing", "waiting"]
    lines = [record.getMessage() for record in caplog.records if "hangs" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith("job bert hangs: Rank 1 has hung for")
    assert "reads /data/x in train.py:12 load. Rank 0 waits for it in all_reduce 17" in lines[0]
    assert lines[1] == "job bert neither hangs nor is stopped any more: it goes on, or has ended"


def test_a_dead_rank_stays_in_the_hang_of_its_peers() -> None:
    def dies() -> Iterator[Batch]:
        job = Job(2).train(60)
        last = max(loop.now for loop in job.loops)
        yield from job.in_time()
        yield batch_of([span_of("process", 0, last + 1, process_end="signal")], rank_resource(1))
        for now in range(int(last) + 5_000, 25_000, 1_000):
            yield threads_at(now, last, IN_COLLECTIVE, rank_resource(0))

    made = feed(make(), dies())
    first = hangs_of(made)[0].ranks[0]
    assert (first.rank, first.role, first.detail) == (1, "dead", "killed by SIGKILL")


def test_a_job_that_was_stuck_before_it_was_watched_hangs_without_a_step() -> None:
    def stuck() -> Iterator[Batch]:
        for at in range(0, 12_000, 1_000):
            yield threads_at(at, 0, IN_COLLECTIVE, rank_resource(0))
            yield threads_at(at, 0, BLOCKED, rank_resource(1))

    made = feed(make(), stuck())
    assert [rank.role for rank in hangs_of(made)[0].ranks] == ["missing", "waiting"]
    assert states_of(made)[-1] == 1


def test_an_elastic_restart_is_no_hang() -> None:
    """The launcher replaces the ranks of a job when one has died. The new ones wait until all have started."""

    def restarts() -> Iterator[Batch]:
        job = Job(2).train(60)
        last = max(loop.now for loop in job.loops)
        for rank, loop in enumerate(job.loops):
            ended = span_of("process", 0, last + 1 + rank * 500, process_end="signal")
            yield batch_of([*loop.spans, ended], rank_resource(rank))
        began, main = last + 1_000, thread("lock", CodeLine(C10D, "init_process_group", 1), seconds=30.0)
        for at in range(int(last) + 6_000, 60_000, 1_000):
            for rank in range(2):
                yield threads_at(at, began, main, rank_resource(rank, first_pid=200))

    made = feed(make(), restarts())
    assert hangs_of(made) == []
    assert states_of(made) == [0]


def test_a_process_alone_hangs_with_its_own_resource() -> None:
    def alone() -> Iterator[Batch]:
        loop = Loop().steps(60).load()
        yield batch_of(loop.spans)
        for at in range(int(loop.now) + 5_000, 25_000, 1_000):
            yield threads_at(at, loop.now, BLOCKED, resource_of())

    made = feed(make(), alone())
    hang = hangs_of(made)[0]
    assert hang.collective is None
    assert [(rank.rank, rank.pid, rank.role) for rank in hang.ranks] == [(None, 42, "missing")]
    assert states_of(made) == [0, 1]
    assert values_of(made, "zernel.job.hung")[0][0]["process.pid"] == 42


def test_a_job_that_ends_while_it_hangs_is_over() -> None:
    def ends() -> Iterator[Batch]:
        yield from hung_job()
        for rank in range(2):
            yield batch_of([span_of("process", 0, 25_500, process_end="signal")], rank_resource(rank))
        yield batch_of(Loop(now=26_000).steps(60).spans)

    made = feed(make(), ends())
    assert states_of([batch for batch in made if batch])[:3] == [0, 1, 0]
    assert len([span for span in spans_of(made) if span.name == "hung"]) == 1


def test_a_malformed_record_is_counted() -> None:
    processor = make()
    record = LogRecord(time_unix_nano=START, event_name="zernel.process.threads")
    assert feed(processor, [records_batch([record], resource_of())]) == []
    assert dropped(processor) == {"malformed_span": 1}


def test_a_job_that_its_user_has_stopped_is_called_stopped(caplog: pytest.LogCaptureFixture) -> None:
    def stops() -> Iterator[Batch]:
        yield from hung_job(until=0)
        for at in range(8_000, 25_000, 1_000):
            for rank in range(2):
                yield threads_at(at, 2_100, BLOCKED, rank_resource(rank), is_stopped=True)

    with caplog.at_level(logging.INFO):
        made = feed(make(), stops())
    assert hangs_of(made) == []
    assert states_of(made) == [0]
    roles = {rank.role for stop in hangs_of(made, "zernel.job.stopped") for rank in stop.ranks}
    assert roles == {"stopped"}
    lines = [record.getMessage() for record in caplog.records if "stopped" in record.getMessage()]
    assert lines == ["job bert is stopped by a signal: `fg` in its shell, or `kill -CONT`, continues it"]
