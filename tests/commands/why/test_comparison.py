"""The comparison of two reports: what changed, where and why, and whether it is more than the noise."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel.cli import main
from otel_zernel.errors import CannotStart
from otel_zernel_commands.why.comparison import SLOWER, UNKNOWN, compared, comparison_text, read_report, status_of
from otel_zernel_commands.why.findings import JobStart, WhyReport
from otel_zernel_commands.why.rendering.as_json import report_json, report_tree
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_commands.why.watch import StepBlock
from tests.commands.why.answers import slow_report
from tests.libraries.training.causes.made_answers import LATE, SLOW, TOKENIZES

TOLERANCE = 0.05


def run(
    load: float = 0.010, *, forward: float = 0.030, blocks: int = 20, spread: float = 0.05, seed: int = 1
) -> WhyReport:
    """A job of two ranks whose blocks of 50 steps spend these seconds a step, give or take `spread`."""
    drawn = random.Random(seed)  # noise of a test
    result = slow_report()
    job = result.jobs[0]

    def block() -> StepBlock:
        return StepBlock(
            50, {"load": 50 * load * drawn.gauss(1, spread), "forward": 50 * forward * drawn.gauss(1, spread)}
        )

    ranks = tuple(replace(rank, blocks=tuple(block() for _ in range(blocks))) for rank in job.ranks)
    return replace(result, jobs=(replace(job, ranks=ranks),))


def test_a_slower_position_is_named_with_its_time() -> None:
    [job] = compared(report_tree(run()), report_tree(run(0.015, seed=2)))
    assert job.is_slower(TOLERANCE)
    assert job.step.difference == pytest.approx(0.005, abs=0.002)
    assert job.positions[0].name == "data loading"
    assert job.positions[0].is_real
    assert not job.positions[1].is_real
    text = comparison_text([job], TOLERANCE, Terminal(80))
    assert " a step (1" in text.splitlines()[0]
    assert "slower by " in text
    assert ", mainly in data loading (" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_change_within_the_tolerance_is_not_called_slower_by_the_exit_status() -> None:
    [job] = compared(report_tree(run(spread=0.001)), report_tree(run(0.0118, spread=0.001, seed=2)))
    assert job.step.is_real
    assert not job.is_slower(TOLERANCE)
    assert job.is_slower(0.01)
    assert "within the tolerance of 5.0 %" in comparison_text([job], TOLERANCE, Terminal(200))


def test_a_change_within_the_noise_is_none() -> None:
    """At most one in twenty comparisons of like runs finds a change."""
    found = 0
    for seed in range(40):
        [job] = compared(report_tree(run(seed=seed, spread=0.3)), report_tree(run(seed=1000 + seed, spread=0.3)))
        found += job.step.is_real
    assert found <= 4
    assert "no change beyond the noise of " in comparison_text([job], TOLERANCE, Terminal(80))


def wandering(seed: int) -> WhyReport:
    """A job on a machine whose load wanders slowly."""
    drawn, at, result = random.Random(seed), 0.0, run()
    blocks = []
    for _ in range(32):
        at = 0.95 * at + drawn.gauss(0, 0.01)
        blocks.append(StepBlock(50, {"load": 50 * 0.040 * (1 + at)}))
    job = result.jobs[0]
    return replace(result, jobs=(replace(job, ranks=tuple(replace(rank, blocks=tuple(blocks)) for rank in job.ranks)),))


def test_blocks_whose_neighbours_are_alike_have_more_noise() -> None:
    found = [compared(report_tree(wandering(seed)), report_tree(wandering(seed + 500)))[0] for seed in range(30)]
    assert sum(job.is_slower(TOLERANCE) for job in found) <= 1


def test_a_faster_job_is_called_so() -> None:
    [job] = compared(report_tree(run()), report_tree(run(0.002)))
    assert not job.is_slower(0.0)
    assert "faster by 8" in comparison_text([job], TOLERANCE, Terminal(80))


def test_a_step_that_is_so_slow_that_few_fit_into_the_watch_is_slower() -> None:
    [job] = compared(report_tree(run()), report_tree(run(0.5, blocks=2)))
    assert status_of([job], TOLERANCE) == SLOWER
    assert "slower by 4" in comparison_text([job], TOLERANCE, Terminal(80))


def test_too_few_blocks_say_nothing_about_a_small_change() -> None:
    [job] = compared(report_tree(run(blocks=2)), report_tree(run(0.015, blocks=2)))
    assert status_of([job], TOLERANCE) == UNKNOWN
    assert "too few steps to tell a change from noise" in comparison_text([job], TOLERANCE, Terminal(80))


def test_the_warm_up_does_not_count() -> None:
    result = run(spread=0.001)
    job = result.jobs[0]
    cold = tuple(replace(rank, blocks=(StepBlock(50, {"load": 100.0}), *rank.blocks)) for rank in job.ranks)
    started = replace(job, ranks=cold, start=JobStart(4.0, 2.0, 3, 5.0))
    [found] = compared(report_tree(run(spread=0.001)), report_tree(replace(result, jobs=(started,))))
    assert found.step.difference == pytest.approx(0, abs=1e-4)


def test_causes_are_new_gone_larger_or_the_same() -> None:
    before, after = run(), run()
    grown = replace(TOKENIZES, gain=0.020, gain_low=0.0195, gain_high=0.0205)
    answer = replace(SLOW, causes=(grown, replace(LATE, rank=3)))
    after = replace(after, jobs=(replace(after.jobs[0], answer=answer),))
    [job] = compared(report_tree(before), report_tree(after))
    changes = {
        cause.name: (cause.before and cause.before.mean, cause.after and cause.after.mean) for cause in job.causes
    }
    assert changes == {
        "data loading: runs Python": (0.0124, 0.020),
        "straggler, rank 1": (0.0034, None),
        "straggler, rank 3": (None, 0.0034),
    }
    text = comparison_text([job], TOLERANCE, Terminal(80))
    assert re.search(r"straggler, rank 3 +-  +3\.40 ms +\+3\.40 ms", text)


def test_jobs_are_compared_by_their_titles() -> None:
    one = run()
    two = replace(one, jobs=(one.jobs[0], replace(one.jobs[0], title="other.py")))
    assert [job.title for job in compared(report_tree(two), report_tree(two))] == ["train.py", "other.py"]
    renamed = replace(one, jobs=(replace(one.jobs[0], title="new.py"),))
    assert [job.title for job in compared(report_tree(one), report_tree(renamed))] == ["new.py"]
    with pytest.raises(CannotStart, match=r"no job is in both reports: train\.py, other\.py in the first, none in"):
        compared(report_tree(two), report_tree(replace(one, jobs=())))


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(report_json(run()), "utf-8")
    assert read_report(path) == report_tree(run())


def test_a_file_of_the_first_release_is_read_and_unknown_causes_of_a_newer_one_are_left_out(tmp_path: Path) -> None:
    tree = json.loads(report_json(run()))
    del tree["jobs"][0]["cost"]
    tree["jobs"][0]["causes"][0]["cause"] = "moonlight"
    path = tmp_path / "a.json"
    path.write_text(json.dumps(tree), "utf-8")
    assert [cause.cause for cause in read_report(path).jobs[0].causes] == ["straggler"]


def test_texts_of_a_file_cannot_control_the_terminal() -> None:
    hostile = run()
    hostile = replace(hostile, jobs=(replace(hostile.jobs[0], title="\x1b]0;x\x07"),))
    text = comparison_text(compared(report_tree(hostile), report_tree(hostile)), TOLERANCE, Terminal(80))
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("train", "is no output of `otel-zernel why --json`: the file: Invalid JSON"),
        ("{}", "started: Field required"),
        (
            json.dumps({**json.loads(report_json(slow_report())), "schema_version": 2}),
            "schema_version: Input should be 1",
        ),
    ],
)
def test_a_file_that_is_no_report_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, "utf-8")
    with pytest.raises(CannotStart, match=sentence):
        read_report(path)


@pytest.mark.parametrize(
    ("load", "words", "status"), [(0.015, (), 3), (0.010, (), 0), (0.015, ("--tolerance", "0.5"), 0)]
)
def test_the_command_compares_files_and_exits_with_3_if_slower(
    tmp_path: Path, load: float, words: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, report in zip(paths, (run(), run(load)), strict=True):
        path.write_text(report_json(report), "utf-8")
    assert main(["why", "--compare", *map(str, paths), *words]) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("train.py: ")
