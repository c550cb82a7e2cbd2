"""A job on several hosts: whose data arrives late, whose ranks die, and which is started again."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from otel_zernel.batch import Batch, points
from tests.processors.phases.processing import dropped, feed, last, make
from tests.processors.phases.synchronous import Job, named, number_of, of_job
from tests.processors.phases.training import (
    MS,
    START,
    Loop,
    attributes_of,
    batch_of,
    metrics_of,
    resource_of,
    span_of,
    spans_of,
    values_of,
)

ALL = {"traces": {"sample": 1}}
HOSTS = ("a", "a", "b", "b")
"""By rank."""


def arriving(job: Job, late: dict[str, int], **more: Any) -> Iterator[Batch]:
    """What the collectors of two hosts send every 200 ms. The data of a host arrives `late` (ms)."""
    end = int(max(loop.now for loop in job.loops)) + 200
    for at in range(0, end + max(late.values(), default=0), 200):
        for rank, host in enumerate(HOSTS[: job.size]):
            since = at - late.get(host, 0)
            if since >= 0:
                yield job.batch(rank, ends=(since, since + 200), host_name=host, **more)


def sorted_by_arrival(job: Job, late: dict[int, int]) -> Iterator[Batch]:
    """What the ranks of one host send every 200 ms. The data of some ranks arrives late (ms)."""
    for at in range(0, int(max(loop.now for loop in job.loops)) + 200, 200):
        for rank in range(job.size):
            since = at - late.get(rank, 0)
            yield job.batch(rank, ends=(since, since + 200))


def times_of(batches: Iterable[Batch], name: str) -> Counter[tuple[int, str]]:
    """How many points each series of a metric has at each time."""
    counts: Counter[tuple[int, str]] = Counter()
    for metric in metrics_of(list(batches), name):
        for point in (*metric.gauge.data_points, *metric.sum.data_points):
            counts[point.time_unix_nano, str(sorted(attributes_of(point.attributes).items()))] += 1
    return counts


def ranks_of(batches: list[Batch], state: str) -> list[float]:
    values = values_of(batches, "zernel.job.ranks")
    return [value for attributes, value in values if attributes["zernel.job.rank.state"] == state]


JOB_METRICS = (
    "zernel.job.verdict",
    "zernel.job.ranks",
    "zernel.job.rank.lateness",
    "zernel.job.collective.transfer",
    "zernel.job.step.duration",
    "zernel.step.critical_path.time",
)


@pytest.mark.parametrize(("host", "late"), [("a", 600), ("b", 1800), ("a", 2600), ("b", 30_000)])
def test_a_series_of_a_job_has_one_value_for_each_interval(host: str, late: int) -> None:
    made = feed(make(), arriving(Job().train(150), {host: late}))
    for name in JOB_METRICS:
        assert set(times_of(made, name).values()) == {1}, name


def unsteady(job: Job, seed: int) -> Iterator[Batch]:
    """What the collectors of three hosts send every 200 ms. Each batch has its own delay; a host's stay in order."""
    draw, hosts = random.Random(seed), ("a", "b", "c", "c")  # drawn delays, not a secret
    arrivals = []
    for host in sorted(set(hosts)):
        at, slow = 0, draw.random() < 0.5
        for since in range(0, int(max(loop.now for loop in job.loops)) + 200, 200):
            at = max(at, since + draw.choice((0, 0, 0, 200, 900, 2500 if slow else 0)))
            arrivals.append((at, host, since))
    for _, host, since in sorted(arrivals):
        for rank in range(job.size):
            if hosts[rank] == host:
                yield job.batch(rank, ends=(since, since + 200), host_name=host)


def doubled(batches: Iterable[Batch]) -> tuple[int, list[tuple[str, ...]]]:
    """The number of metrics, and the series with two values, or a value and an end, in one ms."""
    values: Counter[tuple[str, ...]] = Counter()
    for batch in batches:
        for of_resource in batch.metrics.resource_metrics:
            resource = str(sorted(attributes_of(of_resource.resource.attributes).items()))
            for metric in of_resource.scope_metrics[0].metrics:
                for point in points(metric):
                    own = str(sorted(attributes_of(point.attributes).items()))
                    values[metric.name, own, str(point.time_unix_nano // MS), resource] += 1
    return len({name for name, *_ in values}), [key for key, count in values.items() if count > 1]


@pytest.mark.parametrize("seed", range(3))
def test_every_series_has_one_value_for_each_time_whatever_the_delays_are(seed: int) -> None:
    metrics, twice = doubled(feed(make(**ALL), unsteady(Job(forwards={3: 12.0}).train(120), seed)))
    assert metrics > 20
    assert twice == []


def test_a_job_that_leaves_ends_its_series_after_their_last_value() -> None:
    """Its host goes on with another process."""
    job, alone, batches = Job(size=2).train(40), Loop().steps(400), list[Batch]()
    for at in range(0, 13_000, 200):
        batches += [job.batch(rank, ends=(at, at + 200), host_name="a") for rank in range(2)]
        spans = [span for span in alone.spans if at * MS <= span.end_time_unix_nano - START < (at + 200) * MS]
        batches.append(batch_of(spans, resource_of(900, host_name="a")))
    made = feed(make(idle_timeout="2s", **ALL), batches)
    assert [point.flags for metric in metrics_of(made, "zernel.cause.gain") for point in points(metric)].count(1) > 0
    assert doubled(made)[1] == []


@pytest.mark.parametrize("late", [200, 1800])
def test_a_job_waits_for_a_host_that_is_late_by_less_than_lateness(late: int) -> None:
    """Rank 3 delays the others. Without host b, rank 0 or 1 would be said to."""
    job = Job(forwards={3: 25.0}).train(100)
    in_time = feed(make(**ALL), arriving(job, {}))
    made = feed(make(**ALL), arriving(job, {"b": late}))
    for name in JOB_METRICS:
        assert list(values_of(made, name)) == list(values_of(in_time, name)), name
    assert set(ranks_of(made, "missing")) == {0}
    roots = [attributes_of(span.attributes) for span in named(spans_of(made), "job step")]
    assert len(roots) == 100
    assert {root["zernel.job.step.ranks"] for root in roots} == {4}
    assert {len(named(trace, "step")) for trace in of_job(spans_of(made)).values()} == {4}
    assert {root["zernel.step.critical_path.rank"] for root in roots} == {3}


def test_reports_without_a_late_host_say_that_ranks_are_missing(caplog: pytest.LogCaptureFixture) -> None:
    """Host b is late by 4 s of a job of 7 s."""
    made = feed(make(**ALL), arriving(Job().train(200), {"b": 4000}))
    assert ranks_of(made, "missing")[:2] == ranks_of(made, "reported")[:2] == [2, 2]
    (line,) = [record.getMessage() for record in caplog.records if "that of other hosts" in record.getMessage()]
    assert line.startswith("job bert: the data of b arrives over 2 s after that of other hosts. ")
    assert len(named(spans_of(made), "step")) >= 4 * 200, "late steps still become spans"


def test_a_late_host_counts_with_its_last_report() -> None:
    """Rank 3 delays the others, and its host sends late for ever. The others must not be blamed."""
    made = feed(make(window="60s", **ALL), arriving(Job(forwards={3: 25.0}).train(250), {"b": 3000}))
    assert ranks_of(made, "missing")[5:8] == [2] * 3
    transfers = [value for _, value in values_of(made, "zernel.job.collective.transfer")]
    assert transfers[5:] == pytest.approx([0.002] * len(transfers[5:]), rel=0.3)
    assert last(made, "zernel.job.rank.lateness", zernel_rank=3) > 0.01


def test_a_dead_host_is_silent_and_not_late(caplog: pytest.LogCaptureFixture) -> None:
    """Host b dies after 12 s of a live job, while host a goes on."""
    job, processor = Job().train(750), make(interval="10s")
    made: list[Batch] = []
    for at in range(0, 25_000, 500):
        for rank, host in enumerate(HOSTS):
            if host == "a" or at < 12_000:
                made += processor.process(job.batch(rank, ends=(at, at + 500), host_name=host))
        made += processor.tick(START + (at + 500) * MS)
    assert ranks_of(made, "missing")[-1] == 2
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("job bert: the last data of b is from 2023-11-14T22:13:31Z. ")


def test_a_dead_rank_is_missing_in_the_next_report() -> None:
    """Rank 3 dies after 3 s, and no data reports its end."""
    job = Job().train(250)
    loop = job.loops[3]
    loop.spans = [span for span in loop.spans if span.end_time_unix_nano < span_of("x", 0, 3000).end_time_unix_nano]
    made = feed(make(), arriving(job, {}))
    missing = ranks_of(made, "missing")
    assert set(missing[:3]) == {0}
    assert set(missing[4:]) == {1}


@pytest.mark.parametrize("reports_end", [True, False])
def test_a_dead_rank_holds_up_no_report(*, reports_end: bool) -> None:
    """Rank 3 dies after 3 s. The others go on without it, as a job of pipelines may."""
    job = Job().train(250)
    loop = job.loops[3]
    loop.spans = [span for span in loop.spans if span.end_time_unix_nano < span_of("x", 0, 3000).end_time_unix_nano]
    if reports_end:
        loop.spans.append(span_of("process", 0, 3001, process_end="signal", process_signal=9))
    made = feed(make(idle_timeout="2s", **ALL), arriving(job, {}))
    times = [time for time, _ in times_of(made, "zernel.job.step.duration")]
    assert len(times) == len(set(times)) >= 7
    assert [end - start for start, end in pairwise(times)][:-1] == [10**9] * (len(times) - 2)
    assert ranks_of(made, "missing")[0] == 0
    assert ranks_of(made, "missing")[-1] == 1


STEPS = 60
"""Of a run, which lasts 2 s."""


def restarted(communicator: str, names: tuple[str, str] = ("", "")) -> list[list[Batch]]:
    """The batches of two runs of one job with the same settings: other processes, and numbers that begin anew."""
    first, second = Job(communicator=communicator).train(STEPS), Job(communicator=communicator)
    second.loops = [Loop(now=loop.now + 5000) for loop in first.loops]
    second.train(STEPS)
    return [
        [*arriving(first, {}, process_creation_time="one", zernel_job_run=names[0])],
        [*arriving(second, {}, process_creation_time="two", zernel_job_run=names[1])],
    ]


def ids_of(batches: list[Batch]) -> list[tuple[bytes, bytes]]:
    return [(span.trace_id, span.span_id) for span in spans_of(batches)]


def host_of(batch: Batch) -> object:
    return attributes_of(batch.spans.resource_spans[0].resource.attributes)["host.name"]


@pytest.mark.parametrize("communicator", ["c0ffee", ""])
def test_two_runs_of_a_job_have_no_id_in_common(communicator: str) -> None:
    """The collector follows both runs, or is started anew with the second."""
    first, second = restarted(communicator)
    both = ids_of(feed(make(**ALL), [*first, *second]))
    assert len(both) == len(set(both))
    apart = ids_of(feed(make(**ALL), first)) + ids_of(feed(make(**ALL), second))
    assert len(apart) == len(set(apart))


@pytest.mark.parametrize("names", [("", ""), ("7.0", "7.1")])
def test_collectors_of_one_host_each_make_the_same_ids_in_a_run_and_others_in_the_next(names: tuple[str, str]) -> None:
    ids: list[set[bytes]] = []
    for batches in restarted("", names):
        by_host = [[batch for batch in batches if host_of(batch) == host] for host in ("a", "b")]
        roots, others = (of_job(spans_of(feed(make(**ALL), of_host))) for of_host in by_host)
        assert len(roots.keys() & others.keys()) == STEPS
        ids.append({*roots, *others})
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("communicator", ["c0ffee", ""])
@pytest.mark.parametrize("name", ["", "7.0"])
def test_a_host_that_starts_late_changes_no_id_of_a_step(communicator: str, name: str) -> None:
    """The collector of host b attaches after 1 s, and its data arrives after the steps of host a are released."""
    job = Job(communicator=communicator).train(150)
    batches: list[Batch] = []
    for at in range(0, int(job.loops[0].now) + 3200, 200):
        for rank, host in enumerate(HOSTS):
            behind, since = (3000, 1000) if host == "b" else (0, 0)
            ends = (at - behind, at - behind + 200)
            batches.append(job.batch(rank, since, ends, host_name=host, zernel_job_run=name))
    spans = named(spans_of(feed(make(**ALL), batches)), "step")
    ids: dict[int | None, set[bytes]] = {}
    for span in spans:
        ids.setdefault(number_of(span), set()).add(span.trace_id)
    del ids[None]
    assert len(ids) == 150
    assert {len(of_number) for of_number in ids.values()} == {1}


def test_a_restarted_job_has_one_series_and_the_steps_of_both_runs() -> None:
    first, second = restarted("")
    made = feed(make(**ALL), [*first, *second])
    for name in JOB_METRICS:
        assert set(times_of(made, name).values()) == {1}, name
    traces = of_job(spans_of(made))
    assert len(traces) == 2 * STEPS
    assert {len(named(trace, "step")) for trace in traces.values()} == {4}
    assert {len(named(trace, "job step")) for trace in traces.values()} == {1}


def test_late_spans_of_a_rank_are_dropped_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The ranks of one host send by themselves, and the data of rank 1 arrives 3 s late."""
    job = Job(size=2).train(150)
    processor = make()
    feed(processor, sorted_by_arrival(job, {1: 3000}))
    late = dropped(processor)["late"]
    lines = [record.getMessage() for record in caplog.records if "late spans" in record.getMessage()]
    assert late > 100
    assert len(lines) == 1
    assert " late spans of 1 process on node, most of them of pid 101: they arrived up to 3" in lines[0]


def test_the_spans_of_an_ended_process_are_late_too(caplog: pytest.LogCaptureFixture) -> None:
    processor = make()
    loop = Loop().steps(50)
    end = span_of("process", 0, loop.now + 1, process_end="exit")
    again = batch_of(Loop(now=loop.now + 9000).steps(50).spans, resource_of(7))
    feed(processor, [batch_of([*loop.spans, end]), again, batch_of(loop.spans), again])
    assert dropped(processor) == {"late": len(loop.spans)}
    assert [record for record in caplog.records if "late spans" in record.getMessage()]
