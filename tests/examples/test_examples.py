"""The examples are valid and complete, and do what their comments promise."""

import io
import re
import runpy
from pathlib import Path

import pytest
import zstandard

from examples.simulated_job.recording import DEMO, messages
from otel_zernel.config.schema import read_settings
from otel_zernel.registry import Registry
from tests.collectors import ROOT, finite_run

EXAMPLES = ROOT / "examples"
ENVIRONMENT = {"OTLP_ENDPOINT": "backend:4317", "OTLP_TOKEN": "secret", "ZERNEL_TOKEN": "secret"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    settings = read_settings([str(path)], [], ENVIRONMENT, Registry.installed())
    assert settings.pipelines or "query" in settings.extensions  # which needs no pipeline
    assert not settings.warnings


def test_the_readme_names_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    names = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert [name for name in names if f"]({name})" not in readme] == []


def test_the_example_data_equals_the_output_of_its_script() -> None:
    script = runpy.run_path(str(EXAMPLES / "make_training_node.py"))
    assert (EXAMPLES / "training_node.csv").read_bytes() == script["training_node"]().encode()


def test_a_batch_of_the_percentiles_is_one_second_of_the_recording() -> None:
    script = runpy.run_path(str(EXAMPLES / "make_training_node.py"))
    settings = read_settings([str(EXAMPLES / "percentiles.yaml")], [], {}, Registry.installed())
    rows = len(list(script["rows"]()))
    assert rows / script["SECONDS"] == settings.receivers["csv"].config.model_dump()["batch_size"]


def test_the_percentiles_of_each_gpu_are_shown_and_the_throttled_one_differs() -> None:
    overrides = (
        *("receivers.csv.loop=false", "receivers.csv.interval=0s", "exporters.prometheus.endpoint=localhost:0"),
        *("extensions.health_check.endpoint=localhost:0", "service.telemetry.metrics.level=none"),
    )
    done = finite_run("examples/percentiles.yaml", *overrides)
    waits = done.stdout.partition("zernel.distributed.sync.wait")[2].splitlines()[1:9]
    unit_of_median = {line.split()[0]: line.split()[7] for line in waits}
    assert unit_of_median == {f"zernel.gpu.index={gpu}": "ms" for gpu in range(8)}
    medians = {line.split()[0]: float(line.split()[6]) for line in waits}
    assert min(medians, key=lambda gpu: medians[gpu]) == "zernel.gpu.index=5"


def test_the_quickstart_says_within_ten_seconds_of_data_why_its_job_is_slow() -> None:
    overrides = (
        *("receivers.otlp_json_file.loop=false", "receivers.otlp_json_file.speed=20", "processors.phases.pace=20"),
        *("exporters.prometheus.endpoint=localhost:0", "extensions.health_check.endpoint=localhost:0"),
        *("extensions.api.endpoint=localhost:0", "service.telemetry.metrics.level=none"),
    )
    done = finite_run("examples/quickstart.yaml", *overrides, seconds=120)
    assert "The live page is on http://127.0.0.1:" in done.stderr
    assert re.search(r"^[\d:]{8} pretrain: The other ranks wait for rank 5.* Try: ", done.stdout, re.MULTILINE)
    assert "job pretrain-1 is straggler: The other ranks wait for rank 5" in done.stderr


def test_the_recording_of_the_demo_is_the_simulated_job() -> None:
    decompressor, recorded, file = zstandard.ZstdDecompressor(), [], io.BytesIO(DEMO.read_bytes())
    while size := file.read(4):
        recorded.append(decompressor.decompress(file.read(int.from_bytes(size, "big"))))
    assert recorded == list(messages()), "run `python -m examples.simulated_job.recording`"
    assert DEMO.stat().st_size <= 300_000


def test_the_example_with_less_data_drops_renames_and_shortens() -> None:
    done = finite_run("examples/less_data.yaml", "service.telemetry.metrics.level=none")
    lines = done.stdout.splitlines()
    metrics = {line.split()[0] for line in lines if line and line[0].isalpha()}
    assert {"gpu.power", "gpu.utilization"} <= metrics
    assert not any(name.startswith(("zernel.cuda", "zernel.distributed", "hw.power")) for name in metrics)
    assert any(line.endswith("host.name=train-node-01 deployment.environment.name=test") for line in lines)
    utilization = done.stdout.partition("gpu.utilization")[2].splitlines()[1]
    assert utilization.split()[:2] == ["hw.gpu.task=general", "gpu=0"]
