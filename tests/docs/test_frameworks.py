"""docs/frameworks.md has the results of docs/frameworks.csv, of every program."""

from tests.frameworks.programs import SCORED
from tests.frameworks.report import PAGE, kept, written_into


def test_the_table_has_the_kept_results() -> None:
    page = PAGE.read_text("utf-8")
    assert written_into(page, kept()) == page, "run `python -m tests.frameworks --keep`"


def test_every_program_has_a_result() -> None:
    assert [result.program for result in kept()] == list(SCORED)


def test_every_program_reaches_its_floor() -> None:
    assert [result for result in kept() if float(result.agreement) < SCORED[result.program].floor] == []
