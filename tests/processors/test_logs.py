"""Log records pass processors that have no use for them as the bytes that arrived."""

from typing import Any

import pytest

from otel_zernel.component import Processor
from otel_zernel.testing import make_context
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.resource import ResourceProcessor
from tests.core.parts import every_signal

PASSING: list[tuple[type[Processor], dict[str, Any]]] = [
    (PercentilesProcessor, {"metrics": ["test.value"]}),
    (PercentilesProcessor, {"metrics": ["other"]}),
    (PhasesProcessor, {}),
    (PhasesProcessor, {"source": "signals"}),
    (ResourceProcessor, {"attributes": [{"key": "absent", "action": "delete"}]}),
]


@pytest.mark.parametrize(("cls", "settings"), PASSING)
@pytest.mark.parametrize("alone", [True, False], ids=["logs alone", "with metrics and spans"])
def test_log_records_pass_as_the_bytes_that_arrived(
    cls: type[Processor], settings: dict[str, Any], alone: bool
) -> None:
    batch = every_signal().only({"logs"}) if alone else every_signal()
    arrived = batch.bytes_of("logs")
    processor = cls(cls.Config.model_validate(settings), make_context("processors"))
    came = [one for one in processor.process(batch) if "logs" in one.signals]
    assert [one.bytes_of("logs") for one in came] == [arrived]
    assert came[0].bytes_of("logs") is arrived


def test_the_resource_processor_changes_the_resources_of_log_records() -> None:
    settings = {"attributes": [{"key": "cluster", "value": "a"}]}
    processor = ResourceProcessor(ResourceProcessor.Config.model_validate(settings), make_context("processors"))
    (came,) = processor.process(every_signal())
    (resource,) = came.logs.resource_logs
    assert [(pair.key, pair.value.string_value) for pair in resource.resource.attributes] == [("cluster", "a")]
    assert came.count_of("logs") == 1
