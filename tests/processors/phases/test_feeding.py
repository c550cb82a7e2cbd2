"""A processor without input, or without spans, logs a warning."""

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.phases.job_log import JobLog
from tests.processors.phases.training import START, Loop, batch_of

ROOT = Path(__file__).parents[3]
NO_INPUT, NO_SPANS = "No spans or metrics for phases have arrived", "This pipeline carries no spans"


@pytest.fixture
def processor() -> PhasesProcessor:
    return PhasesProcessor(PhasesProcessor.Config(), make_context("processors", "phases"))


def test_missing_input_is_logged_once(processor: PhasesProcessor, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert not list(processor.tick(START))
    assert caplog.text.count(NO_INPUT) == 1


def test_input_that_arrives_within_10_s_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    """A receiver may take some seconds to attach."""
    config = PhasesProcessor.Config.model_validate({"interval": "1s"})
    processor = PhasesProcessor(config, make_context("processors", "phases"))
    warned = []
    for second in range(1, 21):
        list(processor.tick(START + second * 1_000_000_000))
        warned.append(caplog.text.count(NO_INPUT))
    assert warned == [0] * 9 + [1] * 11


def test_a_processor_with_input_logs_no_warning(processor: PhasesProcessor, caplog: pytest.LogCaptureFixture) -> None:
    list(processor.process(batch_of(Loop().steps(3).spans)))
    list(processor.tick(START))
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize(("source", "is_logged"), [("auto", True), ("scopes", True), ("signals", False)])
def test_a_pipeline_without_spans_is_logged_if_scopes_are_wanted(
    source: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context = replace(make_context("processors", "phases"), signals=frozenset({"metrics"}))
    PhasesProcessor(PhasesProcessor.Config.model_validate({"source": source}), context)
    assert (NO_SPANS in caplog.text) is is_logged


@pytest.mark.parametrize(("pipeline", "is_logged"), [("metrics", True), ("training", False)])
def test_a_processor_knows_the_signals_of_its_pipeline(pipeline: str, is_logged: bool) -> None:
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
    assert (NO_SPANS in done.stderr) is is_logged


def test_processes_without_steps_are_explained_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = JobLog(make_context().logger)
    for _ in range(5):
        log.update({}, [])
        log.log_silence(3)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("No training job yet: looked at 3 processes that send data")


def test_a_job_is_no_silence_and_neither_is_its_end(
    processor: PhasesProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    list(processor.process(batch_of(Loop().steps(300).spans)))
    for second in range(1, 400, 10):
        list(processor.tick(START + second * 1_000_000_000))
    list(processor.flush())
    assert "Found training process" in caplog.text
    assert "Lost training process" in caplog.text
    assert "No training job yet" not in caplog.text
