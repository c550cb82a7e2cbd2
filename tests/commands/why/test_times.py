"""The time of a step by position and activity, and what the GPU did meanwhile."""

import re

import pytest

from benchmarks.training.runs import RECORDED
from otel_zernel_commands.why.findings import report_on
from otel_zernel_commands.why.findings.reporting import device_time, position_times
from otel_zernel_commands.why.rendering import report_text
from otel_zernel_commands.why.rendering.times import device_rows
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.state import SeenProcess
from tests.commands.why.recorded_runs import circumstances, first_process, report, seen


def process(steps: int = 10, **ledger: float) -> SeenProcess:
    """A process with seconds by `position_activity`."""
    found = SeenProcess({"process.pid": 1})
    found.steps.take(("training", "loader"), steps)
    for name, seconds in ledger.items():
        position, _, activity = name.partition("__")
        found.ledger.take((position, activity), seconds)
    return found


def test_positions_are_in_the_order_of_a_step_and_activities_by_their_time() -> None:
    [load, forward] = position_times([process(forward__python=1.0, load__file=2.0, load__python=5.0)])
    assert (load.position, load.phase, load.per_step, load.share) == ("load", "data_loading", 0.7, 0.875)
    assert [(activity.activity, activity.per_step) for activity in load.activities] == [("python", 0.5), ("file", 0.2)]
    assert (forward.position, forward.phase) == ("forward", "gpu_compute")


def test_the_time_of_a_step_is_the_mean_of_its_ranks() -> None:
    [load] = position_times([process(load__file=2.0), process(load__file=4.0)])
    assert load.per_step == pytest.approx(0.3)


@pytest.mark.parametrize("name", sorted(path.name.replace("_", " ") for path in RECORDED.iterdir()))
def test_the_step_of_the_lead_is_that_of_the_table(name: str) -> None:
    """The table has all time; the lead leaves out what happened once, such as the start of the workers."""
    for job in report(name).jobs:
        if job.answer:
            assert sum(row.per_step for row in job.times) == pytest.approx(job.answer.step, rel=0.15)


def test_an_unknown_position_is_shown_as_it_is() -> None:
    assert [row.position for row in position_times([process(later__python=1.0, load__file=1.0)])] == ["load", "later"]


def test_a_gpu_is_busy_starved_by_position_or_neither_is_known() -> None:
    using = process()
    using.gpu_busy.take("scopes", 6.0)
    using.gpu_undetermined.take("scopes", 1.0)
    using.gpu_starved.take(("after_step", "python"), 1.0)
    using.gpu_starved.take(("load", "file"), 1.5)
    using.gpu_starved.take(("load", "python"), 0.5)
    device = device_time([using, process()])
    assert device is not None
    assert (device.busy, dict(device.starved), device.undetermined) == (0.6, {"load": 0.2, "after_step": 0.1}, 0.1)
    assert list(device.starved) == ["load", "after_step"]
    rows = device_rows(device)
    assert [row.name for row in rows] == [
        "busy", "has no work: data loading", "has no work: after the step", "busy or not, which is unknown"
    ]  # fmt: skip
    assert [row.share for row in rows] == pytest.approx([0.6, 0.2, 0.1, 0.1])


def test_the_report_of_a_gpu_job_has_a_second_bar() -> None:
    state = seen("GPU, 2 workers, pinned")
    first_process(state).gpu_busy.take("scopes", 1.0)
    first_process(state).gpu_starved.take(("load", "file"), 0.25)
    text = report_text(report_on(state, JobChoice(), circumstances(gpu_notes=("No NVML.",))), Terminal(80))
    assert "What the GPU does meanwhile: busy 80 % of the time\n  busy" in text
    assert re.search(r"  has no work: data loading +20 %", text)
    first_process(state).gpu_undetermined.take("scopes", 0.75)
    text = report_text(report_on(state, JobChoice(), circumstances(gpu_notes=("No NVML.",))), Terminal(80))
    assert "What the GPU does meanwhile: busy 50 % to 88 % of the time\n  busy" in text
    assert "No NVML." in text


def test_the_report_of_a_job_on_the_cpu_has_no_word_of_a_gpu() -> None:
    text = report_text(report("stalls of 150 ms", gpu_notes=("GPU utilisation: no driver.",)), Terminal(80))
    assert "GPU" not in text


def test_the_ledger_has_the_time_of_the_phases() -> None:
    job = report("stalls of 150 ms").jobs[0]
    assert sum(row.per_step for row in job.times) == pytest.approx(job.steps.mean, rel=0.05)
    loads = next(row.per_step for row in job.shares if (row.phase, row.detail) == ("data_loading", ""))
    assert next(row.per_step for row in job.times if row.position == "load") == pytest.approx(loads)


def test_the_report_says_what_the_watch_cost() -> None:
    state = seen("stalls of 150 ms")
    process = first_process(state)
    process.first_ns, process.seen_ns = 100 * 10**9, 110 * 10**9
    process.probe_times.take("3636", 0.04, is_delta=True)
    job = report_on(state, JobChoice(), circumstances()).jobs[0]
    assert job.cost == pytest.approx(0.004)
    assert "; jitter 89 %\n  Watching slowed the job by about 0.4 %.\n" in report_text(
        report_on(state, JobChoice(), circumstances()), Terminal(80)
    )
    process.first_ns = 109 * 10**9
    assert report_on(state, JobChoice(), circumstances()).jobs[0].cost is None, "after a second it is not known"
