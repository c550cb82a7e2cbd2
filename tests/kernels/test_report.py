"""docs/kernels.md says what docs/kernels.json holds, and the matrix of distributions promises nothing else."""

import pytest

from otel_zernel_receivers.ebpf.kernel.versions import Version
from tests.kernels import report
from tests.receivers.ebpf.kernel.test_kernel_features import matrix

RAN = [row for row in matrix() if row[2][-1] == "ran"]


def test_the_page_is_made_of_the_results_that_are_kept() -> None:
    assert report.PAGE.read_text() == report.page(), "python -m tests.kernels writes it"


@pytest.mark.parametrize(("system", "kernel", "cells"), RAN, ids=[row[0] for row in RAN])
def test_where_the_matrix_says_ran_a_kept_result_shows_it(system: str, kernel: Version, cells: list[str]) -> None:
    architecture = "aarch64" if "arm64" in system else "x86_64"
    results = [one.result for one in report.kept_results().values() if one.result.kernel.architecture == architecture]
    same = [one for one in results if one.release.startswith(".".join(map(str, kernel)) + ".")]
    assert any(one.modes[0] == cells[1] and one.count("passed") and not one.count("failed") for one in same)


def test_no_kept_result_is_other_than_the_catalogue_promises() -> None:
    assert {name: one.result.failures for name, one in report.kept_results().items() if one.result.failures} == {}
