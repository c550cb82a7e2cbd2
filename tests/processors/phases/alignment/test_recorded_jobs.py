"""Steps of real jobs with two ranks, recorded without numbers of collectives, are aligned by time."""

import pytest

from benchmarks.training.runs import recorded
from benchmarks.training.scenarios import SCENARIOS
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from tests.processors.phases.processing import last, run
from tests.processors.phases.synchronous import named, of_job
from tests.processors.phases.training import attributes_of, spans_of

JOBS = ["gloo, DDP", "gloo, DDP, a late rank", "gloo, all_reduce by hand"]


def job(name: str) -> list[Batch]:
    """The recorded spans of a job, with the rank of each process."""
    batches, truths = recorded(name)
    ranks = {truth["pid"]: rank for rank, truth in enumerate(truths)}
    for batch in batches:
        for resource in batch.edit_spans().resource_spans:
            rank = ranks[attributes_of(resource.resource.attributes)["process.pid"]]
            resource.resource.attributes.extend(key_values({"zernel.rank": rank, "zernel.world_size": 2}))
    return batches


@pytest.mark.parametrize("name", JOBS)
def test_every_step_of_both_ranks_is_one_trace(name: str) -> None:
    spans = spans_of(run(*job(name), interval="2s", traces={"sample": 1}))
    traces = of_job(spans)
    assert len(traces) == SCENARIOS[name].steps
    for trace in traces.values():
        assert len(named(trace, "job step")) == 1
        one, other = named(trace, "step")
        assert one.start_time_unix_nano < other.end_time_unix_nano
        assert other.start_time_unix_nano < one.end_time_unix_nano


def test_the_late_rank_is_the_critical_path() -> None:
    made = run(*job("gloo, DDP, a late rank"), interval="2s", traces={"sample": 1})
    roots = [attributes_of(span.attributes) for span in named(spans_of(made), "job step")]
    assert [root["zernel.step.critical_path.rank"] for root in roots] == [1] * len(roots)
    assert last(made, "zernel.step.critical_path.time", zernel_rank=1, zernel_phase="gpu_compute") > 0.5
