"""Batches of many resources and metrics lose those that are counted."""

from otel_zernel.batch import Batch
from tests.core.parts import metrics_of
from tests.processors.percentiles.running import RunningProcessor, gauge


def test_a_batch_loses_many_counted_metrics_and_keeps_the_others() -> None:
    counted = [gauge([1.0], resource={"pid": pid}) for pid in range(5000)]
    other = gauge([1.0], name="other", resource={"pid": 0})
    running = RunningProcessor({"metrics": ["latency"], "suffix": ".p"})
    passed = running.process(Batch.join([*counted, other]))
    assert [metric.name for metric in metrics_of(passed)] == ["other"]
