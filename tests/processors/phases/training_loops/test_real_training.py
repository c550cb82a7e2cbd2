"""Real training on common versions of PyTorch: the live phases agree with the records of the loops."""

import shutil

import pytest

from benchmarks.phases.real_loops import OVERLAP, Score, bar, scores
from benchmarks.training.runs import live
from benchmarks.training.scenarios import SCENARIOS
from tests.receivers.ebpf.jobs.pytorch.torches import OLD, python_of, versions
from tests.receivers.ebpf.watching import require_ebpf
from tests.waiting import measured

SHORT = ("AdamW", "gloo, DDP", "asynchronous streams")
"""The scenarios that are short enough for every run."""
BUSY, BUSY_OVERLAP = 0.9, 0.5
"""The agreement, and the relative error of hidden time, on a busy machine. The scenarios' bars are for a quiet one."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SHORT)
def test_phases_of_an_old_pytorch_are_true(name: str) -> None:
    assert_true(OLD, name, BUSY, BUSY_OVERLAP)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("version", versions())
def test_phases_of_every_pytorch_are_true(version: str, name: str) -> None:
    assert_true(version, name, bar(SCENARIOS[name]), OVERLAP)


def assert_true(version: str, name: str, least: float, overlap: float) -> None:
    """Trains, and compares the live phases with the record of the loop."""
    require_ebpf()
    python, scenario = python_of(version), SCENARIOS[name]
    if scenario.gpu and not shutil.which("cc"):
        pytest.skip("cc is not installed: it builds the simulated GPU")

    def is_good(found: list[Score]) -> bool:
        assert all(score.gap_ns == 0 for score in found)
        return all(score.agreement >= least and is_hidden(score, overlap) for score in found)

    found = measured(lambda: scores(*live(name, python), scenario), is_good)
    assert [score.agreement for score in found if score.agreement < least] == []
    assert all(is_hidden(score, overlap) for score in found)


def is_hidden(score: Score, overlap: float) -> bool:
    """Whether the measured time of hidden collectives is the true one."""
    measured, true = score.hidden_ns
    return measured == pytest.approx(true, rel=overlap)
