"""The table of real runs is that of the kept file, which has every loop on every release of PyTorch it names."""

from benchmarks._real_runs import PAGE, kept, written_into
from benchmarks._scenarios import SCENARIOS
from benchmarks.phases import bar


def test_its_table_is_that_of_the_kept_runs() -> None:
    page = PAGE.read_text("utf-8")
    assert written_into(page, kept()) == page, "run `python -m benchmarks._real_runs`"


def test_phases_were_seen_as_they_should_be_on_every_release() -> None:
    runs = kept()
    for torch in {run.torch for run in runs}:
        agreements = {run.scenario: float(run.agreement) for run in runs if run.torch == torch}
        assert set(agreements) == set(SCENARIOS)
        assert [name for name, agreement in agreements.items() if agreement < bar(SCENARIOS[name])] == []
