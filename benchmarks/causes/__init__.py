"""The causes of jobs, against the same jobs without them."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Final, Protocol, TypeVar

from benchmarks import BenchmarkRow
from tests.receivers.ebpf.jobs.pytorch.torches import INSTALLED, OLD

PYTHON: Final = INSTALLED / OLD / "bin/python"
"""A version of `make torches` that every run of CI has."""
MEDIAN, P90, WORST = 0.01, 0.03, 0.06
"""The bars: the error of a gain, by the step. A cause that is too small to be named counts as no gain."""
_BARS: Final = (("median", MEDIAN), ("p90", P90), ("worst", WORST))


def error_rows(name: str, errors: Sequence[float]) -> Iterator[BenchmarkRow]:
    """The errors of gains, by the step."""
    ordered = sorted(errors)
    values = median(ordered), ordered[int(0.9 * len(ordered))], ordered[-1]
    for (bar, limit), value in zip(_BARS, values, strict=True):
        yield BenchmarkRow(f"{name}, {bar} error of the gain", f"{value:.2%}", f"<= {limit:.0%}", value <= limit)


class Result(Protocol):
    """What a tried job shows."""

    @property
    def text(self) -> str: ...


ResultT = TypeVar("ResultT", bound=Result)


def tried(
    title: str,
    names: Iterable[str],
    trial: Callable[[str], ResultT],
    judge: Callable[[list[ResultT]], Iterable[BenchmarkRow]],
) -> Iterator[BenchmarkRow]:
    """A row for each of the named jobs as soon as it was tried, and then those that `judge` makes of all results."""
    if missing := needs():
        yield BenchmarkRow(f"causes: {title}", missing)
        return
    results = []
    for name in names:
        results.append(trial(name))
        yield BenchmarkRow(f"causes, {title}", results[-1].text)
    yield from judge(results)


def needs() -> str:
    """What real jobs need; empty if it is there."""
    return "needs `make torches` and root" if not PYTHON.exists() or os.geteuid() != 0 else ""


def count_row(name: str, count: int, of: int) -> BenchmarkRow:
    """For how many of the jobs something is so that should be for all."""
    return BenchmarkRow(f"causes: {name}", f"{count} of {of}", "all", count == of)


def print_rows(rows: Callable[[Iterable[str]], Iterable[BenchmarkRow]], names: Iterable[str]) -> None:
    """Prints the rows of the jobs that the command line names, or else of all."""
    for row in rows(sys.argv[1:] or names):
        print(f"{row.name}: {row.value} {row.bar}", flush=True)
