"""docs/versions.md has the runs of docs/real_runs.csv, with every loop on every release of PyTorch."""

from benchmarks.phases.real_loops import bar
from benchmarks.training.real_runs import PAGE, kept, written_into
from benchmarks.training.scenarios import SCENARIOS


def test_the_table_has_the_recorded_runs() -> None:
    page = PAGE.read_text("utf-8")
    assert written_into(page, kept()) == page, "run `python -m benchmarks.training.real_runs`"


def test_every_loop_ran_on_every_release() -> None:
    runs = list(kept())
    assert runs
    for torch in {run.torch for run in runs}:
        assert {run.scenario for run in runs if run.torch == torch} == set(SCENARIOS)


def test_every_loop_reaches_its_bar() -> None:
    assert [run for run in kept() if float(run.agreement) < bar(SCENARIOS[run.scenario])] == []
