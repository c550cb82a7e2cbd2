"""docs/kernels.md says what docs/kernels.json holds."""

from tests.kernels import report


def test_the_page_is_made_of_the_results_that_are_kept() -> None:
    assert report.PAGE.read_text() == report.page(), "python -m tests.kernels writes it"
