"""The log of a program, and the comparison with the phases that were found."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs.recording.truth import GLUE, Recorder
from tests.frameworks.scoring import EXPECTED, MERGED, NONE, Found, Piece, Score, score

MS = 1_000_000
STEP = (0, 100 * MS, {"zernel.step.kind": "training", "zernel.step.boundary": "loader", "thread.id": 7})


def truth_of(*marks: tuple[str, int, int]) -> dict[str, Any]:
    """The truth of 100 ms on thread 7; times in ms."""
    return {
        "thread": 7,
        "loop": [0, 100 * MS],
        "steps": 1,
        "marks": [(name, start * MS, end * MS) for name, start, end in marks],
        "versions": {},
    }


def found_of(*pieces: tuple[str, int, int], thread: int = 7) -> Found:
    """One step with these phases; times in ms."""
    made = [Piece(start * MS, end * MS, phase, phase, "") for phase, start, end in pieces]
    return Found({thread: made}, [STEP])


def scored(found: Found, truth: dict[str, Any], *merged: tuple[int, int]) -> Score:
    return score(found, truth, EXPECTED, [(start * MS, end * MS) for start, end in merged])


def test_the_agreement_is_the_share_of_the_logged_time_with_the_correct_phase() -> None:
    truth = truth_of(("data", 0, 20), ("forward", 30, 70))
    found = scored(found_of(("data_loading", 0, 50), ("gpu_compute", 50, 100)), truth)
    assert found.agreement == pytest.approx(40 / 60, abs=1e-4)
    assert found.confused == {("forward", "data_loading (data_loading)"): pytest.approx(0.02, abs=1e-5)}
    assert found.steps == (1, 1)


def test_time_outside_the_steps_is_wrong() -> None:
    found = scored(found_of(("gpu_compute", 0, 50)), truth_of(("forward", 0, 100)))
    assert found.agreement == pytest.approx(0.5, abs=1e-4)
    assert found.confused == {("forward", NONE): pytest.approx(0.05, abs=1e-5)}


def test_phases_of_another_thread_do_not_count() -> None:
    assert scored(found_of(("gpu_compute", 0, 100), thread=8), truth_of(("forward", 0, 100))).agreement == 0
    assert scored(found_of(("gpu_compute", 0, 100), thread=0), truth_of(("forward", 0, 100))).agreement == 1


def test_within_a_sum_of_regions_the_order_does_not_count() -> None:
    truth = truth_of(("rollout", 0, 40), ("host", 40, 100))
    reversed_order = found_of(("unknown", 0, 60), ("gpu_compute", 60, 100))
    assert scored(reversed_order, truth).agreement < 0.5
    assert scored(reversed_order, truth, (0, 100)).agreement == pytest.approx(1, abs=1e-4)


def test_within_a_sum_of_regions_missing_time_counts() -> None:
    truth = truth_of(("rollout", 0, 40), ("host", 40, 100))
    found = scored(found_of(("unknown", 0, 80), ("gpu_compute", 80, 100)), truth, (0, 100))
    assert found.agreement == pytest.approx(0.8, abs=1e-4)
    assert found.confused == {("rollout", MERGED): pytest.approx(0.02, abs=1e-5)}


def test_the_innermost_region_of_a_log_counts_and_glue_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.loop(), recorder.region("optimizer"), recorder.region(GLUE), recorder.region("forward"):
        recorder.stepped()
    recorder.write()
    truth = json.loads((tmp_path / "truth.0.0.json").read_text())
    assert [name for name, _, _ in truth["marks"]] == ["optimizer", "forward", "optimizer"]
    assert truth["steps"] == 1
    edges = [at for _, start, end in truth["marks"] for at in (start, end)]
    assert edges == sorted(edges)
    assert truth["loop"][0] <= edges[0] < edges[-1] <= truth["loop"][1]


def test_a_program_without_a_loop_has_no_log(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.region("data"):
        pass
    recorder.write()
    assert list(tmp_path.iterdir()) == []
