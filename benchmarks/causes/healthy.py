"""What `why` says of programs without a fault: `python -m benchmarks.causes.healthy [NAME ...]`.

Right is that nothing is worth changing, or a wait for CPUs that others use. The machine must be quiet.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from benchmarks import BenchmarkRow
from benchmarks.causes import count_row, print_rows, tried
from benchmarks.causes.beside import said_by_why, training
from benchmarks.causes.real import OF_MACHINE

PROGRAMS: Final = {"gpt": 1, "cnn": 1, "ranks": 2, "lstm": 1, "trainer": 1}
"""The ranks by program of benchmarks/training/healthy."""


class Answered(NamedTuple):
    """What `why` says of a program."""

    text: str
    is_right: bool


def run() -> Iterator[BenchmarkRow]:
    return rows(PROGRAMS)


def rows(names: Iterable[str]) -> Iterator[BenchmarkRow]:
    """The answers on the named programs."""
    return tried("healthy programs", names, answered, judged)


def answered(name: str) -> Answered:
    """Trains, and asks `why` meanwhile."""
    with training(f"benchmarks/training/healthy/{name}.py", ranks=PROGRAMS[name]) as pid:
        job = said_by_why(pid)
    is_right = all(cause["cause"] in OF_MACHINE for cause in job["causes"])
    return Answered("; ".join([f"{name}: {job['why']}", *map(_text, job["causes"])]), is_right)


def judged(answers: list[Answered]) -> Iterator[BenchmarkRow]:
    yield count_row("healthy programs without a cause", sum(answer.is_right for answer in answers), len(answers))


def _text(cause: dict[str, Any]) -> str:
    place = "/".join(str(cause[key]) for key in ("cause", "position", "activity", "rank") if cause[key] is not None)
    return f"{place} {cause['share']:.1%} {' '.join(cause['code'][:1])}".rstrip()


if __name__ == "__main__":
    print_rows(rows, PROGRAMS)
