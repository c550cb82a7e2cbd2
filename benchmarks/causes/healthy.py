"""What `why` says of programs without a fault: `python -m benchmarks.causes.healthy [NAME ...]`.

Right is that nothing is worth changing, or a wait for CPUs that others use. The machine must be quiet.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from benchmarks import BenchmarkRow
from benchmarks.causes.beside import PYTHON, said_by_why, training
from benchmarks.causes.real import OF_MACHINE

PROGRAMS: Final = {"gpt": 1, "cnn": 1, "ranks": 2, "lstm": 1, "trainer": 1}
"""The ranks by program of benchmarks/training/healthy."""


def run() -> Iterator[BenchmarkRow]:
    return rows(PROGRAMS)


def rows(names: Iterable[str]) -> Iterator[BenchmarkRow]:
    """The answers on the named programs."""
    if not PYTHON.exists() or os.geteuid() != 0:
        yield BenchmarkRow("causes: healthy programs", "needs `make torches` and root")
        return
    right, count = 0, 0
    for name in names:
        with training(f"benchmarks/training/healthy/{name}.py", ranks=PROGRAMS[name]) as pid:
            job = said_by_why(pid)
        is_right = all(cause["cause"] in OF_MACHINE for cause in job["causes"])
        right, count = right + is_right, count + 1
        yield BenchmarkRow(f"causes, healthy: {name}", "; ".join([job["why"], *map(_text, job["causes"])]))
    yield BenchmarkRow("causes: healthy programs", f"{right} of {count} without a cause", "all", right == count)


def _text(cause: dict[str, Any]) -> str:
    place = "/".join(str(cause[key]) for key in ("cause", "position", "activity", "rank") if cause[key] is not None)
    return f"{place} {cause['share']:.1%} {' '.join(cause['code'][:1])}".rstrip()


if __name__ == "__main__":
    for row in rows(sys.argv[1:] or PROGRAMS):
        print(f"{row.name}: {row.value} {row.bar}", flush=True)
