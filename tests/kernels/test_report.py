"""docs/kernels.md shows the results in docs/kernels.json, and the README's matrix of distributions agrees with them."""

import pytest

from otel_zernel_receivers.ebpf.kernel.versions import Version
from tests.kernels import report
from tests.receivers.ebpf.kernel.test_kernel_features import matrix

RAN = [row for row in matrix() if row[2][-1] == "ran"]


def test_the_page_is_generated_from_the_stored_results() -> None:
    assert report.PAGE.read_text() == report.page(), "regenerate it: python -m tests.kernels"


@pytest.mark.parametrize(("system", "kernel", "cells"), RAN, ids=[row[0] for row in RAN])
def test_a_stored_result_proves_each_row_of_the_matrix_that_ran(system: str, kernel: Version, cells: list[str]) -> None:
    architecture = "aarch64" if "arm64" in system else "x86_64"
    results = [one.result for one in report.stored_results().values() if one.result.kernel.architecture == architecture]
    same = [one for one in results if one.release.startswith(".".join(map(str, kernel)) + ".")]
    assert any(one.modes[0] == cells[1] and one.count("passed") and not one.count("failed") for one in same)


def test_stored_results_agree_with_the_catalogue() -> None:
    assert {name: one.result.failures for name, one in report.stored_results().items() if one.result.failures} == {}
