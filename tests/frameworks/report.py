"""The results of the programs: docs/frameworks.csv, and the table of docs/frameworks.md that is made of it."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date
from pathlib import Path

from tests.frameworks.programs import PROGRAMS
from tests.frameworks.scoring import Score

DOCS = Path(__file__).parents[2] / "docs"
KEPT, PAGE = DOCS / "frameworks.csv", DOCS / "frameworks.md"
_FENCE = re.compile(r"(<!-- programs: [^>]*-->\n).*?(<!-- end of programs -->)", re.DOTALL)
_HEAD = ("program", "versions", "steps true", "steps found", "by", "agreement", "at least", "verdict", "scored")


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a program. If it has several ranks or training threads: of the one with the least agreement."""

    program: str
    versions: str
    steps: str
    """The true number."""
    found: str
    """The number of steps that the processor found."""
    boundary: str
    """What divides them."""
    agreement: str
    """Share of the scored time with the correct phase, 0 to 1."""
    floor: str
    """The least agreement that the program must reach."""
    verdict: str
    scored: str
    """The day."""

    @property
    def torch(self) -> str:
        """The version of PyTorch; empty without it."""
        match = re.search(r"torch ([\d.]+)", self.versions)
        return match[1] if match else ""


def result_of(name: str, scores: Sequence[Score], day: date) -> Result:
    """The result of a program that was scored on a day."""
    worst = min(scores, key=lambda score: score.agreement)
    boundary = worst.boundaries.most_common(1)[0][0] if worst.boundaries else ""
    versions = " ".join(f"{package} {version}" for package, version in worst.versions.items())
    true, found = worst.steps
    shares = f"{worst.agreement:.4f}", str(PROGRAMS[name].floor)
    return Result(name, versions, str(true), str(found), boundary, *shares, worst.verdict, day.isoformat())


def result_of_states(name: str, share: float, versions: Mapping[str, str], day: date) -> Result:
    """The result of a program without PyTorch's scopes: it has neither steps nor a verdict of its own."""
    package = PROGRAMS[name].package
    text = f"{package} {versions[package]}"
    return Result(name, text, "", "", "", f"{share:.4f}", str(PROGRAMS[name].floor), "", day.isoformat())


def kept() -> list[Result]:
    """The results in the file."""
    with KEPT.open(encoding="utf-8", newline="") as file:
        return [Result(**row) for row in csv.DictReader(file)]


def keep(results: Iterable[Result]) -> None:
    """Adds results to the file, or replaces those of the same programs and versions, and writes the page."""
    found = {(result.program, result.torch): result for result in [*(kept() if KEPT.exists() else ()), *results]}
    names = list(PROGRAMS)
    some = (result for result in found.values() if result.program in PROGRAMS)
    ordered = sorted(some, key=lambda result: (names.index(result.program), _numbers(result.torch)))
    with KEPT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Result))
        writer.writerows(map(astuple, ordered))
    PAGE.write_text(written_into(PAGE.read_text("utf-8"), ordered), "utf-8")


def written_into(page: str, results: Sequence[Result]) -> str:
    """The text of the page with the table of these results."""
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, results)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return _FENCE.sub(rf"\1\n{table}\n\n\2", page)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".") if number]


def _row(result: Result) -> tuple[str, ...]:
    shares = (f"{float(share):.2%}" for share in (result.agreement, result.floor))
    program = (result.program, result.versions, result.steps, result.found, result.boundary)
    return (*program, *shares, result.verdict, result.scored)
