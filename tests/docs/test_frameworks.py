"""docs/frameworks.md has the results of docs/frameworks.csv."""

from tests.frameworks.programs import PROGRAMS
from tests.frameworks.report import PAGE, kept, written_into


def test_the_table_has_the_kept_results() -> None:
    page = PAGE.read_text("utf-8")
    assert written_into(page, kept()) == page, "run `python -m tests.frameworks --keep`"


def test_every_program_of_the_usual_tests_has_a_result() -> None:
    found = [result.program for result in kept()]
    assert [name for name, program in PROGRAMS.items() if name not in found and not program.soak] == []


def test_every_program_reaches_its_floor() -> None:
    assert [result for result in kept() if float(result.agreement) < PROGRAMS[result.program].floor] == []
