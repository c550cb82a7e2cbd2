"""Runs inside the emulated machine: loads every variant of the BPF objects, then runs the receiver's tests.

    python -m tests.kernels.guest FOLDER [TEST ...]

Writes the result to `FOLDER/result.json` (see `tests.kernels.campaign.Result`), and the output of the tests to
`FOLDER/tests`.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import load_variant, variants
from otel_zernel_receivers.ebpf.tables.tables import Limits

ROOT = Path(__file__).parents[2]
SECONDS_PER_TEST = 900


def main() -> None:
    """Writes the result. The exit code is 0 even if tests fail."""
    folder = Path(sys.argv[1])
    tests = sys.argv[2:]
    result = {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "loads": {f"{mode}/{variant}": _load(mode, variant) for mode in Mode for variant in sorted(variants(mode))},
        "doctor": _output([sys.executable, "-m", "otel_zernel", "doctor"]),
        "tests": _run_tests(folder, tests) if tests else {},
    }
    (folder / "result.json").write_text(json.dumps(result, indent=1))


def _load(mode: Mode, variant: str) -> dict[str, object]:
    """The time that a probe adds to a call, or the error of loading."""
    try:
        loaded = load_variant(Limits(max_processes=8, max_series=8), mode, variant)
    except OSError as error:
        return {"error": str(error)[-1500:]}
    loaded.close()
    return {"call_ns": round(loaded.cost.call_ns), "floor_ns": loaded.cost.floor_ns, "unseen": loaded.not_counted}


def _run_tests(folder: Path, tests: list[str]) -> dict[str, str]:
    """The outcome of each test by its name."""
    report = folder / "report.xml"
    # Rewriting assertions means compiling the tests here. Plain modules were compiled on the host.
    plugins = ("-p", "no:cacheprovider", "-p", "no:anyio")
    options = ["--assert=plain", *plugins, f"--timeout={SECONDS_PER_TEST}", "--durations=15"]
    environment = {**os.environ, "WITHOUT_TORCH": "1", "REQUIRE_BPF": "1"}
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", *options, f"--junitxml={report}", *tests]
    with (folder / "tests").open("wb") as output:
        subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=output, stderr=subprocess.STDOUT)
    if not report.exists():
        return {}
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    outcomes = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    return next((outcomes[child.tag] for child in case if child.tag in outcomes), "passed")


def _output(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
