"""The report on a job that hangs leads with the guilty rank, as text, as a page and as JSON."""

import io
import json
from collections.abc import Iterable

import jsonschema
import pytest

from docs.why_schema import PATH
from otel_zernel.batch import Batch
from otel_zernel_commands.why.findings import Circumstances, WhyReport, report_on
from otel_zernel_commands.why.progress import WatchProgress
from otel_zernel_commands.why.rendering import page, report_text
from otel_zernel_commands.why.rendering.as_json import report_json
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_commands.why.watch import watched_state
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.state import TrainingState
from tests.commands.why.gpus import Reading, gpu_batch
from tests.processors.phases.jobs.test_hangs import BLOCKED, IN_COLLECTIVE, hung_job, rank_resource, threads_at
from tests.processors.phases.processing import make
from tests.processors.phases.training import START, batch_of, resource_of, span_of


def state_of(batches: Iterable[Batch], *, is_over: bool = True) -> TrainingState:
    """The state after phases have seen these batches."""
    processor, state = make(), watched_state()
    made = [out for batch in batches for out in processor.process(batch)]
    for out in [*made, *processor.flush()] if is_over else made:
        state.add(out, 0.0)
    state.settle(0.0)
    return state


def report_of(state: TrainingState) -> WhyReport:
    return report_on(state, JobChoice(), Circumstances(START, 25.0, is_interrupted=False, processes=2))


def stuck_job() -> Iterable[Batch]:
    """A job that was stuck before it was watched."""
    for at in range(0, 9_000, 500):
        yield threads_at(at, 0, IN_COLLECTIVE, rank_resource(0))
        yield threads_at(at, 0, BLOCKED, rank_resource(1))


@pytest.fixture(scope="module")
def hung() -> WhyReport:
    return report_of(state_of(hung_job()))


def test_the_text_leads_with_the_guilty_rank(hung: WhyReport) -> None:
    lines = report_text(hung, Terminal(width=200)).splitlines()
    assert "2 ranks on node" in lines[0]
    assert lines[2].strip().startswith("Rank 1 has hung for ")
    assert "it reads /data/x in train.py:12 load. Rank 0 waits for it in all_reduce 17 in train.py:30" in lines[2]
    assert lines[4].startswith("  Try: Check that the other end answers on node: the mount, the server, or")
    at = lines.index("What each rank does")
    assert lines[at + 1 : at + 3] == ["  rank 1 (pid 101, missing): it reads /data/x", "      train.py:12 load"]


def test_a_job_that_was_stuck_before_the_watch_is_in_the_report() -> None:
    (job,) = report_of(state_of(stuck_job())).jobs
    assert job.diagnosis.verdict == "hung"
    assert job.diagnosis.sentence.startswith("Rank 1 has hung for ")
    assert " s: it reads /data/x in train.py:12 load." in job.diagnosis.sentence
    assert job.hang is not None
    assert job.hang.since < START / 1e9  # its wait had lasted for 30 s
    assert job.steps.count == 0


def test_errors_of_the_gpus_of_a_hung_job_are_named() -> None:
    readings: list[Reading] = [
        ("zernel.gpu.process.memory.usage", 1e9, {"process.pid": 101}),
        ("zernel.gpu.xid.errors", 1.0, {"zernel.gpu.xid.code": "79"}),
        ("zernel.gpu.xid.last_time", START / 1e9 - 3600, {"zernel.gpu.xid.code": "79"}),
    ]
    state = state_of(hung_job())
    state.add(gpu_batch(1, readings, "node"), 0.0)
    (job,) = report_of(state).jobs
    assert job.diagnosis.sentence.endswith(
        "The driver has reported an error of GPU 1 of rank 1 60 min ago: XID 79 (GPU has fallen off the bus)."
    )
    assert [dict(gpu.xids) for gpu in job.gpus] == [{"79": 1}]


def test_the_json_has_the_hang_in_its_schema(hung: WhyReport) -> None:
    tree = json.loads(report_json(hung))
    jsonschema.validate(tree, json.loads(PATH.read_text("utf-8")))
    found = tree["jobs"][0]["hung"]
    assert found["collective"] == {"operation": "all_reduce", "communicator": "w", "sequence": 17}
    assert found["since"] == pytest.approx(START / 1e9 + 2, abs=2)
    assert found["ranks"][0] == {
        "rank": 1,
        "host": "node",
        "pid": 101,
        "role": "missing",
        "activity": "pipe",
        "detail": "reads /data/x",
        "code": ["train.py:12 load", "train.py:30 train", "train.py:99 <module>"],
    }
    assert [one["role"] for one in found["ranks"]] == ["missing", "waiting"]


def test_the_page_has_the_lines_of_each_rank(hung: WhyReport) -> None:
    html = page(hung)
    assert "What each rank does" in html
    assert "rank 1 (pid 101, missing): it reads /data/x\ntrain.py:12 load" in html


def test_the_watch_ends_once_all_chosen_jobs_hang() -> None:
    def ends(state: TrainingState) -> bool:
        return WatchProgress(io.StringIO(), state, JobChoice(), lambda _: True).has_ended()

    assert ends(state_of(stuck_job(), is_over=False))
    assert not ends(state_of(hung_job(until=10_000), is_over=False))


def test_a_job_that_goes_on_hangs_no_more() -> None:
    def goes_on() -> Iterable[Batch]:
        yield from hung_job()
        for at in (26_000, 29_000):
            for rank in range(2):
                yield batch_of([span_of("optimizer", at, at + 4)], rank_resource(rank))

    state = state_of(goes_on(), is_over=False)
    assert [job.hang for job in state.jobs] == [None]


def test_a_stopped_job_is_called_stopped_and_then_goes_on() -> None:
    def stops() -> Iterable[Batch]:
        yield from hung_job(until=0)
        for at in range(8_000, 25_000, 1_000):
            for rank in range(2):
                yield threads_at(at, 2_100, BLOCKED, rank_resource(rank), is_stopped=True)

    def continues() -> Iterable[Batch]:
        yield from stops()
        for at in (26_000, 29_000):
            for rank in range(2):
                yield batch_of([span_of("optimizer", at, at + 4)], rank_resource(rank))

    report = report_of(state_of(stops()))
    tree = json.loads(report_json(report))
    jsonschema.validate(tree, json.loads(PATH.read_text("utf-8")))
    assert tree["jobs"][0]["hung"] is None
    assert [rank["role"] for rank in tree["jobs"][0]["stopped"]["ranks"]] == ["stopped", "stopped"]
    (job,) = report.jobs
    assert job.diagnosis.verdict == "stopped"
    assert job.diagnosis.sentence.startswith("Ranks 0 and 1 have been stopped for ")
    assert "`kill -CONT 100 101`" in job.diagnosis.sentence
    assert [job.hang for job in state_of(continues(), is_over=False).jobs] == [None]


def test_a_process_that_trains_alone_has_its_hang() -> None:
    def alone() -> Iterable[Batch]:
        yield batch_of([span_of("backward", 0, 5), span_of("optimizer", 6, 8)], resource_of())
        for at in range(6_000, 26_000, 1_000):
            yield threads_at(at, 8, BLOCKED, resource_of())

    (job,) = report_of(state_of(alone())).jobs
    assert job.diagnosis.sentence.startswith("The process 42 has hung for ")
    assert job.hang is not None
    assert job.hang.collective is None
