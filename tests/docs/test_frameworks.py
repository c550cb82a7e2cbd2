"""docs/frameworks.md has the results of docs/frameworks.csv."""

from tests.frameworks.programs import PROGRAMS
from tests.frameworks.report import PAGE, kept, written_into


def test_the_table_has_the_kept_results() -> None:
    page = PAGE.read_text("utf-8")
    assert written_into(page, kept()) == page, "run `python -m tests.frameworks --keep`"


def test_every_program_of_the_usual_tests_has_a_result() -> None:
    found = [result.program for result in kept()]
    usual = [name for name, program in PROGRAMS.items() if not program.soak and not program.fails]
    assert [name for name in usual if name not in found] == []


def test_every_program_reaches_its_floor() -> None:
    assert [result for result in kept() if float(result.agreement) < PROGRAMS[result.program].floor] == []
