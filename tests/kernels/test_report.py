"""docs/kernels.md shows the results in docs/kernels.json, and the README's matrix of distributions agrees with them."""

import pytest

from tests.kernels import report
from tests.receivers.ebpf.kernel.test_kernel_features import Distribution, matrix

RAN = [row for row in matrix() if row.proof == "ran"]


def test_the_page_is_generated_from_the_stored_results() -> None:
    assert report.PAGE.read_text() == report.page(), "regenerate it: python -m tests.kernels"


@pytest.mark.parametrize("row", RAN, ids=lambda row: row.system)
def test_a_stored_result_proves_each_row_of_the_matrix_that_ran(row: Distribution) -> None:
    results = [stored_result.result for stored_result in report.stored_results().values()]
    same = [
        result
        for result in results
        if result.kernel.architecture == row.architecture
        and result.release.startswith(".".join(map(str, row.kernel)) + ".")
    ]
    assert any(one.modes[0] == row.mode and one.count("passed") and not one.count("failed") for one in same)


def test_stored_results_agree_with_the_catalogue() -> None:
    assert {
        name: stored_result.result.failures
        for name, stored_result in report.stored_results().items()
        if stored_result.result.failures
    } == {}
