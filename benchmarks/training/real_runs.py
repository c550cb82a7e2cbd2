"""Trains on each installed version of PyTorch, and writes the agreement of the phases to docs/real_runs.csv.

Run `python -m benchmarks.training.real_runs [VERSION ...]` as root, after `make torches`. The table in docs/versions.md
is generated from that file.
"""

import csv
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from benchmarks.phases.real_loops import bar, scores
from benchmarks.training.runs import live
from benchmarks.training.scenarios import SCENARIOS
from tests.receivers.ebpf.jobs.pytorch.torches import python_of, versions

TRIES = 3
"""Attempts for each loop: on a busy machine, preemption shifts the two clocks of a run."""
DOCS = Path(__file__).parents[2] / "docs"
KEPT, PAGE = DOCS / "real_runs.csv", DOCS / "versions.md"
FENCE = re.compile(r"(<!-- real runs: [^>]*-->\n).*?(<!-- end of real runs -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RealRun:
    """One run of a training loop of `benchmarks/training/truth.py` under the live receiver."""

    torch: str
    python: str
    scenario: str
    agreement: str
    """Share of the loop with the correct phase, 0 to 1, of the rank with the lowest."""
    runs: str
    """Number of runs, up to TRIES, until the agreement met its target. The values are those of the last run."""


def kept() -> list[RealRun]:
    """The runs in the file."""
    with KEPT.open(encoding="utf-8", newline="") as file:
        return [RealRun(**row) for row in csv.DictReader(file)]


def keep(runs: Iterable[RealRun]) -> None:
    """Replaces the file's runs."""
    with KEPT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(RealRun))
        writer.writerows(map(astuple, runs))


def written_into(page: str, runs: list[RealRun]) -> str:
    """The text of the page with the table of these runs."""
    return FENCE.sub(lambda fence: f"{fence[1]}\n{_table(runs)}\n\n{fence[2]}", page)


def _table(runs: list[RealRun]) -> str:
    builds = list(dict.fromkeys((run.torch, run.python) for run in runs))
    found = {(run.torch, run.python, run.scenario): _cell(run) for run in runs}
    head = ["training loop", *(f"{torch}, Python {python}" for torch, python in builds)]
    rows = [[name, *(found.get((*build, name), "") for build in builds)] for name in SCENARIOS]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _cell(run: RealRun) -> str:
    share = f"{float(run.agreement):.2%}"
    return share if run.runs == "1" else f"{share} (run {run.runs})"


def run(version: str) -> Iterator[RealRun]:
    """Runs every loop on one version."""
    python = python_of(version)
    question = "import platform, torch; print(torch.__version__, platform.python_version())"
    answer = subprocess.run([python, "-c", question], check=True, capture_output=True, text=True)
    torch, release = answer.stdout.split()
    for name in SCENARIOS:
        runs, agreement = _agreement(name, python)
        yield RealRun(torch, release, name, f"{agreement:.4f}", str(runs))


def _agreement(name: str, python: str) -> tuple[int, float]:
    """The number of runs, and the agreement of the last."""
    scenario, runs, agreement = SCENARIOS[name], 0, 0.0
    while runs < TRIES and agreement < bar(scenario):
        runs += 1
        agreement = min(score.agreement for score in scores(*live(name, python), scenario))
    return runs, agreement


def main(chosen: list[str]) -> None:
    """Runs every loop on these versions (default: all installed), and replaces their runs in the file and the page."""
    runs = {(run.torch, run.python, run.scenario): run for run in (kept() if KEPT.exists() else ())}
    for made in (made for version in chosen or versions() for made in run(version)):
        runs[made.torch, made.python, made.scenario] = made
        print(*astuple(made), flush=True)
        keep(runs.values())
    PAGE.write_text(written_into(PAGE.read_text("utf-8"), list(runs.values())), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
