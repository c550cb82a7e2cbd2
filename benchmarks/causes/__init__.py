"""The causes of jobs, against the same jobs without them."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks import BenchmarkRow

MEDIAN, P90, WORST = 0.01, 0.03, 0.06
"""The bars: the error of a gain, by the step. A cause that is too small to be named counts as no gain."""
_BARS: Final = (("median", MEDIAN), ("p90", P90), ("worst", WORST))


def error_rows(name: str, errors: Sequence[float]) -> Iterator[BenchmarkRow]:
    """The errors of gains, by the step."""
    ordered = sorted(errors)
    values = median(ordered), ordered[int(0.9 * len(ordered))], ordered[-1]
    for (bar, limit), value in zip(_BARS, values, strict=True):
        yield BenchmarkRow(f"{name}, {bar} error of the gain", f"{value:.2%}", f"<= {limit:.0%}", value <= limit)
