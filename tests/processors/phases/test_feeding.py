"""A processor that gets nothing, or half of it, says so."""

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from tests.processors.phases.training import START, Loop, batch_of

ROOT = Path(__file__).parents[3]
NOTHING, HALF = "Nothing that phases are made of has come", "spans, which this pipeline does not carry"


@pytest.fixture
def processor() -> PhasesProcessor:
    return PhasesProcessor(PhasesProcessor.Config(), make_context("processors", "phases"))


def test_that_nothing_comes_is_said_once(processor: PhasesProcessor, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert not list(processor.tick(START))
    assert caplog.text.count(NOTHING) == 1


def test_who_is_fed_says_nothing(processor: PhasesProcessor, caplog: pytest.LogCaptureFixture) -> None:
    list(processor.process(batch_of(Loop().steps(3).spans)))
    list(processor.tick(START))
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize(("source", "is_said"), [("auto", True), ("scopes", True), ("signals", False)])
def test_scopes_do_not_come_through_a_pipeline_of_metrics(
    source: str, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context = replace(make_context("processors", "phases"), signals=frozenset({"metrics"}))
    PhasesProcessor(PhasesProcessor.Config.model_validate({"source": source}), context)
    assert (HALF in caplog.text) is is_said


@pytest.mark.parametrize(("pipeline", "is_said"), [("metrics", True), ("training", False)])
def test_the_collector_tells_processors_what_their_pipeline_carries(pipeline: str, is_said: bool) -> None:
    configuration = f"""
receivers: {{csv: {{files: [examples/training_node.csv]}}}}
processors: {{phases: {{}}}}
exporters: {{debug: {{}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{{pipeline}: {{receivers: [csv], processors: [phases], exporters: [debug]}}}}
"""
    command = [sys.executable, "-m", "otel_zernel", "run", "--exit-when-done", "--config", f"yaml:{configuration}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (HALF in done.stderr) is is_said
