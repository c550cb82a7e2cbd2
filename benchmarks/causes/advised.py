"""Whether jobs become faster when somebody follows the first advice of `why` word for word.

`python -m benchmarks.causes.advised [NAME ...]` watches planted jobs, takes the first advice of the answer on each, and
runs the job in pairs of blocks: as it is, and as the advice wants it (`benchmarks.training.advised`).
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import BenchmarkRow
from benchmarks.causes import PYTHON, count_row, print_rows, tried
from benchmarks.causes.real import OF_MACHINE, REAL, result_of, watched_plant
from benchmarks.training.runs import ROOT, launcher

JOBS: Final = (
    "tokenizer in the loop",
    "samples that sleep",
    "workers restarted",
    "iterator per step",
    "many small parameters",
    "gradients exchanged while they accumulate",
    "norms of gradients",
    "log sent after the step",
    "checkpoint every 20 steps",
    "garbage collection",
    "small collectives",
)
LONGEST_S: Final = 300.0


@dataclass(frozen=True)
class Advised:
    """What following the first advice does to a job."""

    name: str
    advice: str
    """Empty if there was none."""
    predicted: float
    """The gain of the first cause, by the step."""
    gains: tuple[float, ...]
    """By which part a step is shorter, for each pair; empty without a change for this advice."""

    @property
    def gain(self) -> float:
        return statistics.fmean(self.gains) if self.gains else 0.0

    @property
    def noise(self) -> float:
        """The standard error of the gain."""
        return statistics.stdev(self.gains) / len(self.gains) ** 0.5 if len(self.gains) > 1 else 0.0

    @property
    def is_faster(self) -> bool:
        return self.gain > 2 * self.noise

    @property
    def text(self) -> str:
        """`job | gain of the advice | gain of the cause | advice | remark`."""
        remark = "" if self.is_faster else "NOT FASTER" if self.gains else "NOT FOLLOWED"
        gain = f"{self.gain:.1%} ({self.noise:.1%})"
        return " | ".join([self.name, gain, f"{self.predicted:.1%}", self.advice or "-", remark])


def run() -> Iterator[BenchmarkRow]:
    return rows(JOBS)


def rows(names: Iterable[str]) -> Iterator[BenchmarkRow]:
    """The results of the named jobs."""
    return tried("advice followed", names, advised, judged)


def judged(results: list[Advised]) -> Iterator[BenchmarkRow]:
    yield count_row("faster by the first advice", sum(result.is_faster for result in results), len(results))


def advised(name: str) -> Advised:
    """Watches a job, and follows the first advice of the answer. Other programs on the machine are no matter here."""
    answer = result_of(name, *watched_plant(name)).answer
    lead = next((cause for cause in (answer.causes if answer else ()) if cause.cause not in OF_MACHINE), None)
    if lead is None or not lead.advice:
        return Advised(name, "", lead.share if lead else 0.0, ())
    return Advised(name, lead.advice[0], lead.share, _gains(name, lead.advice[0]))


def _gains(name: str, advice: str) -> tuple[float, ...]:
    """By which part a step of the job is shorter after the advice. The job is not watched."""
    with tempfile.TemporaryDirectory() as folder:
        program = ["-m", "benchmarks.training.advised", name, advice, folder]
        subprocess.run(
            [PYTHON, *launcher(REAL[name].ranks), *program],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,  # an advice without a change has no result
            capture_output=True,
            timeout=LONGEST_S,
        )
        result = Path(folder) / "gains.json"
        return tuple(json.loads(result.read_text())) if result.exists() else ()


if __name__ == "__main__":
    print_rows(rows, JOBS)
