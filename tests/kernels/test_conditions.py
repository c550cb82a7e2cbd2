"""On machines that forbid part of eBPF, the receiver counts as usual, or `doctor` reports what forbids it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernels.campaign import run
from tests.kernels.conditions import CONDITIONS, Condition
from tests.kernels.debian.damage import without_types
from tests.kernels.test_boots import SECONDS, STOOD_STILL, need_package, warn_of_boots


@pytest.mark.soak
@pytest.mark.filterwarnings(f"default:{STOOD_STILL}")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("condition", CONDITIONS, ids=[f"{one.name} on {one.kernel.name}" for one in CONDITIONS])
def test_the_receiver_counts_or_doctor_reports_what_forbids_it(condition: Condition, tmp_path: Path) -> None:
    package = need_package(condition.kernel)
    image = None if condition.types else without_types(package, tmp_path / "vmlinux")
    kernel = replace(condition.kernel, mode=None) if condition.finding else condition.kernel
    result = run(kernel, condition.tests, tmp_path / "results", condition.before, condition.arguments, image, SECONDS)
    warn_of_boots(result)
    assert not result.failures
    sentences = re.findall(r"^  !!  attaching +(.*)$", result.doctor, re.MULTILINE)
    assert len(sentences) == bool(condition.finding), result.doctor
    assert all(sentence.startswith(condition.finding) for sentence in sentences), sentences
