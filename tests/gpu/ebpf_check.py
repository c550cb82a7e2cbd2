"""`make gpu-check`: compares the ebpf receiver with a training job that counts its own actions."""

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
from tests.gpu.quantities import Quantities, Row, compare, recorded, table
from tests.gpu.watched import JOB, ROOT, batches_of, collector

REPORT = ROOT / "docs" / "gpu_check_ebpf.txt"
STEPS = 200
PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
"""The Python that runs the training job. It must have PyTorch."""


def main(report: Path = REPORT, steps: int = STEPS) -> int:
    """Prints the comparison, and writes it to `report` if there is a GPU.

    Returns 1 if a quantity differs or the job fails, else 0, also without PyTorch.
    """
    if reason := missing_requirement():
        print(f"Nothing to check: {reason}.")
        return 0
    try:
        job, rows = run_check(steps)
    except RuntimeError as problem:
        print(f"The check failed: {problem}.")
        return 1
    differing = sum(not row.agree for row in rows)
    about = f"PyTorch {job['torch']}, {job['gpu'] or 'no GPU'}, Linux {platform.release().partition('-')[0]}"
    head = [f"{about}, {datetime.now(UTC):%Y-%m-%d}, {steps} steps", f"{len(rows)} quantities, {differing} differ"]
    text = "\n".join([*head, *table(rows)]) + "\n"
    print(text, end="")
    if job["gpu"]:
        report.write_text(text)
    else:
        print("PyTorch finds no GPU: only scopes and phases were compared, and no report was written.")
    return int(differing > 0)


def missing_requirement() -> str | None:
    """The reason why a training cannot be watched here, if there is one."""
    if not has_torch():
        return f"{PYTHON} has no PyTorch; see tests/gpu/README.md"
    try:
        load(Limits(max_processes=8, max_series=8)).close()
    except (Unavailable, OSError) as missing:
        return str(missing)
    return None


def has_torch(condition: str = "True") -> bool:
    """Whether PYTHON has PyTorch, and this condition is true there."""
    question = f"import sys, torch; sys.exit(not ({condition}))"
    return not subprocess.run([PYTHON, "-c", question], check=False, capture_output=True).returncode


def run_check(steps: int) -> tuple[dict[str, Any], list[Row]]:
    """The job's report (`torch`, `gpu`, `did`), and its comparison with the collector's output.

    The job runs twice. torch.profiler makes calls slower, so the seconds are those of the run without it.
    """
    (counted, did), (timed, took) = watched(steps, "profiled"), watched(steps, "")
    rows = [row for row in compare(counted["did"], did) if not row.is_time]
    return counted, [*rows, *(row for row in compare(timed["did"], took) if row.is_time)]


def watched(steps: int, profiled: str) -> tuple[dict[str, Any], Quantities]:
    """The job's report, and the same quantities from the collector's output."""
    name = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder, training(name, steps, profiled) as process:
        with collector(Path(folder), name) as output:
            resume(process)
            expect(process, "trained")
        resume(process)
        report = json.loads(expect(process, "{"))
        return report, recorded(batches_of(output), process.pid)


@contextmanager
def training(name: str, steps: int, profiled: str) -> "Iterator[subprocess.Popen[str]]":
    """The training job, ready to start."""
    command = [PYTHON, "-m", "tests.gpu.training", str(steps), profiled]
    environment, pipe = {**os.environ, JOB: name, "NCCL_SOCKET_IFNAME": "lo"}, subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdin=pipe, stdout=pipe) as process:
        expect(process, "ready")
        yield process


def expect(process: "subprocess.Popen[str]", begin: str) -> str:
    """The job's next line that starts with `begin`; others are skipped. Raises RuntimeError if the job ends before."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith(begin):
            return line
    raise RuntimeError(f"the training ended before it printed {begin!r}")


def resume(process: "subprocess.Popen[str]") -> None:
    print(file=process.stdin, flush=True)


if __name__ == "__main__":
    sys.exit(main())
