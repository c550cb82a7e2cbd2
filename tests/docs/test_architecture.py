"""docs/development/architecture.md names every room of the core and the libraries, in the order of imports."""

import re
from pathlib import Path

import pytest

from tests.contract.test_rooms import HOUSES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/development/architecture.md").read_text("utf-8")
CORE = ROOT / "otel_zernel"
LIBRARIES = ROOT / "libraries/otel_zernel_libraries"


def packages(house: Path) -> set[str]:
    return {folder.name for folder in house.iterdir() if (folder / "__init__.py").exists()}


def named_rooms(house: str) -> list[str]:
    """The rooms in the rows of the table below the row of the house."""
    _, _, rows = TEXT.partition(f"| **[`{house}/`]")
    cells = re.findall(r"^\| ((?:`\w+` ?)+)\|", rows.partition("| **[")[0], re.MULTILINE)
    return re.findall(r"`(\w+)`", " ".join(cells))


def test_every_room_has_its_sentence() -> None:
    files = {file.stem for file in LIBRARIES.glob("*.py")} - {"__init__"}
    assert sorted(named_rooms("libraries")) == sorted(packages(LIBRARIES) | files)
    assert sorted(named_rooms("otel_zernel")) == sorted(packages(CORE))


@pytest.mark.parametrize(("house", "package"), [("libraries", "otel_zernel_libraries"), ("otel_zernel", "otel_zernel")])
def test_imports_run_down_the_table(house: str, package: str) -> None:
    floors = {room: number for number, rooms in enumerate(HOUSES[package]) for room in rooms}
    named = [floors[room] for room in named_rooms(house)]
    assert named == sorted(named)
