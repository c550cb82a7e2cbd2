"""The recorded training run: a replay needs no root and gives the same phases, byte for byte."""

import hashlib
import runpy
import subprocess
import sys
from pathlib import Path

from otel_zernel import __version__
from otel_zernel.otlp.json import to_json
from tests.collectors import finite_run

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = Path(__file__).with_name("replayed.jsonl")


def replayed() -> bytes:
    """The output as OTLP in JSON lines, without the version in every scope."""
    script = runpy.run_path(str(EXAMPLES / "replay.py"))
    batches = script["replayed"](script["RECORDING"])
    lines = [to_json(batch.metrics) if "metrics" in batch.signals else to_json(batch.spans) for batch in batches]
    return b"".join(line + b"\n" for line in lines).replace(b',"version":"%s"' % __version__.encode(), b"")


def test_a_recording_replays_to_the_same_bytes() -> None:
    assert hashlib.sha256(replayed()).hexdigest() == hashlib.sha256(EXPECTED.read_bytes()).hexdigest()


def test_the_replay_has_the_steps_of_train_py() -> None:
    command = [sys.executable, "examples/replay.py"]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, check=True)
    steps = {line.split()[2]: float(line.split()[-1]) for line in done.stdout.splitlines() if "zernel.steps" in line}
    assert steps == {"training": 150, "evaluation": 9, "between": 3}


def test_the_replay_by_the_collector_has_the_same_steps() -> None:
    replay = "receivers.otlp_json_file"
    overrides = (f"{replay}.speed=0", f"{replay}.timestamps=recorded", "service.telemetry.metrics.level=none")
    done = finite_run("examples/replay.yaml", *overrides)
    tables = [table.partition("\n\n")[0] for table in done.stdout.split("zernel.steps ")[1:]]
    rows = [line.split() for table in tables for line in table.splitlines() if "zernel.step.kind=" in line]
    steps = {row[0].rpartition("=")[2]: int(row[-1]) for row in rows}
    assert steps == {"training": 150, "evaluation": 9, "between": 3}
