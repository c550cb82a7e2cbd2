"""The simulated job: its metrics are those of the receivers, and the phases processor finds what its README says."""

import random
from itertools import chain

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from docs import metrics as page
from examples.simulated_job.__main__ import SimulatedJob
from examples.simulated_job.training import SECOND, STRAGGLER
from otel_zernel.batch import Batch
from tests.otlp import metrics_in
from tests.processors.phases.processing import feed, make
from tests.processors.phases.training import spans_of, values_of

START = 1_800_000_000 * SECOND


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    """What the job sends in 20 seconds."""
    random.seed(1)
    job = SimulatedJob(START)
    requests = chain.from_iterable(job.read(START + second * SECOND) for second in range(1, 21))
    return [
        Batch(spans=TracesData.FromString(request.SerializeToString()))
        if hasattr(request, "resource_spans")
        else Batch(metrics=MetricsData.FromString(request.SerializeToString()))
        for request in requests
    ]


def kind_of(metric: Metric) -> str:
    kind = metric.WhichOneof("data") or ""
    return "up_down" if kind == "sum" and not metric.sum.is_monotonic else kind


def test_its_metrics_have_the_names_units_and_types_of_the_receivers(batches: list[Batch]) -> None:
    declared = {
        (metric.name, metric.unit, metric.kind)
        for _, table in page.tables()
        for metric in table.values()
        if not metric.own
    }
    metrics = [metric for batch in batches for metric in metrics_in(batch.metrics)]
    sent = {(metric.name, metric.unit, kind_of(metric)) for metric in metrics}
    assert len(sent) > 40
    assert sent - declared == set()


def test_the_processor_finds_the_straggler_and_the_critical_path(batches: list[Batch]) -> None:
    made = feed(make(interval="5s", window="10s", traces={"sample": 20}), batches)
    lateness = {labels["zernel.rank"]: value for labels, value in values_of(made, "zernel.job.rank.lateness")}
    assert max(lateness, key=lambda rank: lateness[rank]) == STRAGGLER
    verdicts = [labels["zernel.job.verdict"] for labels, one in values_of(made, "zernel.job.verdict") if one]
    assert list(dict.fromkeys(verdicts)) == ["straggler", "input_bound"]  # the data is late in the last seconds
    paths = values_of(made, "zernel.step.critical_path.time")
    waited = {rank: sum(one for labels, one in paths if labels["zernel.rank"] == rank) for rank in range(8)}
    assert max(waited, key=lambda rank: waited[rank]) == STRAGGLER
    assert {"job step", "step", "process", "all_reduce"} <= {span.name for span in spans_of(made)}


def test_the_same_seed_makes_the_same_job() -> None:
    def first() -> bytes:
        random.seed(1)
        return SimulatedJob(START).read(START + SECOND)[1].SerializeToString()

    assert first() == first()
