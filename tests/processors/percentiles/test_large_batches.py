"""Batches of many resources and metrics share the event loop."""

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE
from tests.core.parts import metrics_of
from tests.processors.percentiles.running import RunningProcessor, gauge


def outputs(*, pass_through: bool) -> list[Batch]:
    counted = [gauge([1.0], resource={"pid": pid}) for pid in range(5000)]
    other = gauge([1.0], name="other", resource={"pid": 0})
    running = RunningProcessor({"metrics": ["latency"], "pass_through": pass_through, "suffix": ".p"})
    return running.process(Batch.join([*counted, other]))


def test_a_batch_loses_many_counted_metrics_in_pieces_and_keeps_the_others() -> None:
    passed, reduced = outputs(pass_through=True), outputs(pass_through=False)
    assert [metric.name for metric in metrics_of(reduced[-1:])] == ["other"]
    assert all(one is PAUSE for one in reduced[:-1])
    assert len(reduced) > len(passed) > 2
