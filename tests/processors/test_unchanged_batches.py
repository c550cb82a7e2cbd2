"""Batches that a processor does not change pass as the bytes that arrived."""

from typing import Any

import pytest

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Processor
from otel_zernel.testing import make_context
from otel_zernel_processors.attributes import AttributesProcessor
from otel_zernel_processors.filter import FilterProcessor
from otel_zernel_processors.metricstransform import MetricsTransformProcessor
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.resource import ResourceProcessor
from otel_zernel_processors.transform import TransformProcessor
from tests.core.parts import every_signal
from tests.otlp import data, gauge, number

KEEP = {"key": "k", "value": 1}
UNCHANGED: list[tuple[type[Processor], dict[str, Any]]] = [
    (AttributesProcessor, {"actions": [{**KEEP, "action": "upsert"}, {"key": "gone", "action": "delete"}]}),
    (FilterProcessor, {"metrics": {"datapoint": ["value_double > 5"]}}),
    (
        MetricsTransformProcessor,
        {"transforms": [{"include": "n", "action": "update", "operations": [{"action": "toggle_scalar_data_type"}]}]},
    ),
    (PercentilesProcessor, {"metrics": ["other"]}),
    (ResourceProcessor, {"attributes": [{"key": "k", "value": 1}, {"key": "gone", "action": "delete"}]}),
    (
        TransformProcessor,
        {
            "metric_statements": [
                'set(metric.unit, "x") where metric.name == "other"',
                'set(resource.attributes["k"], 1)',
                'delete_key(datapoint.attributes, "gone")',
            ]
        },
    ),
]


def passed(kind: type[Processor], settings: dict[str, Any], batch: Batch, signal: Signal) -> list[bytes]:
    """The bytes of a signal that come out."""
    processor = kind(kind.Config.model_validate(settings), make_context("processors"))
    return [output.bytes_of(signal) for output in processor.process(batch) if signal in output.signals]


@pytest.mark.parametrize(("kind", "settings"), UNCHANGED, ids=[kind.__name__ for kind, _ in UNCHANGED])
def test_metrics_without_a_change_pass_as_the_bytes_that_arrived(
    kind: type[Processor], settings: dict[str, Any]
) -> None:
    points = number(1.0, {"k": 1}), number(2.0, {"k": 1, "x": "y"})
    batch = Batch.from_bytes(metrics=data(gauge("m", *points), resource={"k": 1}).SerializeToString())
    arrived = batch.bytes_of("metrics")
    [came] = passed(kind, settings, batch, "metrics")
    assert came is arrived


PASSING: list[tuple[type[Processor], dict[str, Any]]] = [
    (PercentilesProcessor, {"metrics": ["test.value"]}),
    (PercentilesProcessor, {"metrics": ["other"]}),
    (PhasesProcessor, {}),
    (PhasesProcessor, {"source": "signals"}),
    (ResourceProcessor, {"attributes": [{"key": "absent", "action": "delete"}]}),
]


@pytest.mark.parametrize(("kind", "settings"), PASSING)
@pytest.mark.parametrize("alone", [True, False], ids=["logs alone", "with metrics and spans"])
def test_log_records_pass_as_the_bytes_that_arrived(
    kind: type[Processor], settings: dict[str, Any], alone: bool
) -> None:
    batch = every_signal().only({"logs"}) if alone else every_signal()
    arrived = batch.bytes_of("logs")
    [came] = passed(kind, settings, batch, "logs")
    assert came is arrived


def test_the_resource_processor_changes_the_resources_of_log_records() -> None:
    settings = {"attributes": [{"key": "cluster", "value": "a"}]}
    processor = ResourceProcessor(ResourceProcessor.Config.model_validate(settings), make_context("processors"))
    (came,) = processor.process(every_signal())
    (resource,) = came.logs.resource_logs
    assert [(pair.key, pair.value.string_value) for pair in resource.resource.attributes] == [("cluster", "a")]
    assert came.count_of("logs") == 1
