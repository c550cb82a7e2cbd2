"""The whole path: spans of a training process in, its phases out."""

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from tests.processors.phases.training import Loop, batch_of, values_of


def run(*batches: Batch, **settings: object) -> list[Batch]:
    config = PhasesProcessor.Config.model_validate({"interval": "1s", **settings})
    processor = PhasesProcessor(config, make_context("processors", "phases"))
    return [out for batch in batches for out in processor.process(batch)] + list(processor.flush())


def phases_of(batches: list[Batch]) -> dict[str, float]:
    """The last value of zernel.phase.time of each phase, in ms."""
    times = values_of(batches, "zernel.phase.time")
    return {str(attributes["zernel.phase"]): round(value * 1000, 6) for attributes, value in times}


def test_every_nanosecond_of_a_step_has_its_phase() -> None:
    loop = Loop().steps(100).load()
    assert phases_of(run(batch_of(loop.spans))) == pytest.approx(
        {"data_loading": 505, "gpu_compute": 2200, "optimizer_step": 500, "unknown": 10}
    )
