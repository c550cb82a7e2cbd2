"""`make gpu-check`: what the ebpf receiver saw of a training job beside what the job did."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.gpu.quantities import Row, compare, seen, table
from tests.gpu.watched import JOB, ROOT, batches_of, collector

REPORT = ROOT / "docs" / "gpu_check_ebpf.txt"
STEPS = 200
PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
"""Whose PyTorch trains."""


def main(report: Path = REPORT, steps: int = STEPS) -> int:
    """Prints the comparison, and keeps it if there was a GPU. 1 if something differs, 0 if nothing does or can."""
    if reason := why_not():
        print(f"There is nothing to check here: {reason}.")
        return 0
    try:
        told, rows = checked(steps)
    except RuntimeError as problem:
        print(f"The check came to no end: {problem}.")
        return 1
    differing = sum(not row.agree for row in rows)
    about = f"PyTorch {told['torch']}, {told['gpu'] or 'no GPU'}, Linux {platform.release()}"
    head = [f"{about}, {datetime.now(UTC):%Y-%m-%d}, {steps} steps", f"{len(rows)} quantities, {differing} differ"]
    text = "\n".join([*head, *table(rows)]) + "\n"
    print(text, end="")
    if told["gpu"]:
        report.write_text(text)
    else:
        print("PyTorch sees no GPU here: scopes and phases are all that was compared, and nothing is kept.")
    return int(differing > 0)


def why_not() -> str | None:
    """What is missing for a collector that watches a training, if anything is."""
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True).returncode:
        return f"{PYTHON} has no PyTorch; see tests/gpu/README.md"
    try:
        load(Limits(max_processes=8, max_series=8)).close()
    except (Unavailable, OSError) as missing:
        return str(missing)
    return None


def checked(steps: int) -> tuple[dict[str, Any], list[Row]]:
    """What the job says of itself (`torch`, `gpu`, `did`), and that beside what was seen."""
    name = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder, job(name, steps) as process:
        with collector(Path(folder), name) as output:
            go_on(process)
            expect(process, "trained")
        go_on(process)
        told = json.loads(expect(process, "{"))
        return told, compare(told["did"], seen(batches_of(output), process.pid))


@contextmanager
def job(name: str, steps: int) -> "Iterator[subprocess.Popen[str]]":
    """The training, ready to begin."""
    command = [PYTHON, "-m", "tests.gpu.training", str(steps)]
    environment, pipe = {**os.environ, JOB: name, "NCCL_SOCKET_IFNAME": "lo"}, subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdin=pipe, stdout=pipe) as process:
        expect(process, "ready")
        yield process


def expect(process: "subprocess.Popen[str]", begin: str) -> str:
    """The next line of the job's that begins so; libraries may print what they like. RuntimeError if there is none."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith(begin):
            return line
    raise RuntimeError(f"the training has ended before it said {begin!r}")


def go_on(process: "subprocess.Popen[str]") -> None:
    print(file=process.stdin, flush=True)


if __name__ == "__main__":
    sys.exit(main())
