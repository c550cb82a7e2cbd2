"""`why --replay` reports on a recording, without root and without a job."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel.cli.command_line import main
from otel_zernel_libraries.training import semconv

ROOT = Path(__file__).parents[3]
RECORDING = str(ROOT / "examples/training_spans.jsonl")
STEPS = 150
"""Training steps in the recording."""


def test_a_recording_has_the_report_of_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "--replay", RECORDING, "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["ranks"][0]["steps"] == STEPS
    assert job["causes"][0]["position"] == "load"
    assert job["host"] == "trainer"


def test_the_results_of_phases_are_reported_as_they_were_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    results = tmp_path / "results.jsonl"
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
receivers: {{otlp_json_file: {{include: [{RECORDING}]}}}}
processors: {{phases: {{window: 1h, pace: 0}}}}
exporters: {{file: {{path: {results}}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{training: {{receivers: [otlp_json_file], processors: [phases], exporters: [file]}}}}
"""
    )
    command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(config), "--exit-when-done"]
    subprocess.run(command, check=True, capture_output=True)
    assert semconv.JOB_CAUSES in results.read_text()
    assert main(["why", "--replay", str(results), "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["causes"][0]["position"] == "load"


def test_a_name_selects_the_job_of_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "--replay", RECORDING, "--job", "python3.11"]) == 0
    assert "150 steps" in capsys.readouterr().out
    assert main(["why", "--replay", RECORDING, "--job", "other"]) == 1
    assert 'has no training job with the name "other"; found: python3.11' in capsys.readouterr().err


def test_a_recording_without_steps_has_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recording = tmp_path / "metrics.jsonl"
    recording.write_text('{"resourceMetrics":[]}\n')
    assert main(["why", "--replay", str(recording)]) == 1
    assert "metrics.jsonl has no training steps: record the pipeline of `ebpf`" in capsys.readouterr().err
