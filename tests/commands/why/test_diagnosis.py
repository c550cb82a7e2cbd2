"""The sentence about a job, from recorded runs with a known cause."""

import re
from dataclasses import replace

import pytest

from benchmarks.training.runs import recorded
from otel_zernel_commands.why.findings import JobFindings, JobGroup, report_on
from otel_zernel_commands.why.findings.diagnosis import diagnosis_of
from otel_zernel_commands.why.findings.reporting import time_shares
from otel_zernel_commands.why.watch import watched_state
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.amounts import percent
from otel_zernel_libraries.training.causes import JobAnswer, Unknown
from otel_zernel_libraries.training.state import SeenProcess
from tests.commands.why.gpus import throttled
from tests.commands.why.recorded_runs import circumstances, first_process, report, seen, simulated


def job_of(name: str, *, is_job: bool = False) -> JobFindings:
    [job] = report(name, is_job=is_job).jobs
    return job


def test_a_slow_loader_is_named() -> None:
    job = job_of("stalls of 150 ms")
    assert job.diagnosis.verdict == "input_bound"
    assert job.diagnosis.sentence.startswith("The training thread loses time while it loads data: this costs ")
    assert job.answer is not None
    assert job.diagnosis.advice == job.answer.causes[0].advice, "none: the recording does not say who loads"
    assert job.answer.causes[0].position == "load"


def step_by_its_own_clock(name: str) -> float:
    """The mean seconds of a step of a planted job, without the receiver."""
    loop = recorded(name)[1][0]["loop"]
    return float(loop[-1] - loop[0]) / (len(loop) - 1) / 1e9


def test_batches_that_the_main_process_makes_are_named_with_the_step_of_the_job_without_them() -> None:
    job = job_of("collate in the main process")
    assert job.answer is not None
    lead = job.answer.causes[0]
    assert (lead.cause, lead.position, lead.activity) == ("segment", "load", "python")
    took, without = map(step_by_its_own_clock, ("collate in the main process", "nothing"))
    assert job.answer.step == pytest.approx(took, rel=0.03)
    assert job.answer.step - lead.gain == pytest.approx(without, abs=0.06 * took)
    assert job.diagnosis.advice[0].startswith("Load batches in worker processes")


def test_the_job_without_a_cause_has_nothing_worth_changing() -> None:
    job = job_of("nothing")
    assert job.answer is not None
    assert job.answer.causes == ()
    assert job.answer.best == pytest.approx(job.answer.step, rel=0.1)


def test_a_rank_that_runs_more_python_is_named_with_what_it_does() -> None:
    job = job_of("Python on rank 1")
    assert job.answer is not None
    lead = job.answer.causes[0]
    assert (lead.cause, lead.rank, lead.position, lead.activity) == ("straggler", 1, "load", "python")
    assert lead.gain == pytest.approx(0.012, rel=0.1), "the Python that was planted"
    assert job.diagnosis.sentence.startswith(
        "The other ranks wait for rank 1, which runs Python for longer than they do while it loads data: "
    )


def test_a_late_rank_is_named_with_its_position() -> None:
    job = job_of("gloo, DDP, a late rank", is_job=True)
    assert job.diagnosis.verdict == "straggler"
    assert job.diagnosis.sentence.startswith(
        "The other ranks wait for rank 1, which needs more time than they do in the forward pass: "
    )
    assert [rank.rank for rank in job.ranks] == [0, 1]
    assert job.ranks[1].lateness == pytest.approx(0.022, abs=0.005)


def test_a_job_that_computes_has_nothing_worth_changing() -> None:
    job = job_of("GPU, 2 workers, pinned")
    assert job.diagnosis.verdict == "compute_bound"
    assert job.diagnosis.sentence.startswith("Nothing worth changing was found: ")


def test_the_parts_of_a_step_add_up_to_the_step() -> None:
    job = job_of("stalls of 150 ms")
    phases = [row for row in job.shares if not row.detail]
    assert sum(row.share for row in phases) == pytest.approx(1)
    assert sum(row.per_step for row in phases) == pytest.approx(job.steps.mean, rel=0.05)
    details = sum(row.per_step for row in job.shares if row.detail and row.phase == "gpu_compute")
    assert details == pytest.approx(next(row.per_step for row in phases if row.phase == "gpu_compute"), rel=0.02)


def test_a_gpu_with_lower_clocks_is_named_for_a_job_without_a_cause() -> None:
    state = seen("GPU, 2 workers, pinned")
    pid = first_process(state).pid
    for batch in [*throttled(3, pid), *throttled(5, pid + 1)]:
        state.add(batch, 0.0)
    result = report_on(state, JobChoice(), circumstances())
    [job] = result.jobs
    assert job.diagnosis.sentence.endswith(" GPU 3 is throttled 50 % of the time (power limit).")
    assert [gpu.index for gpu in job.gpus] == [3]
    assert [gpu.index for gpu in result.gpus] == [5]
    assert job.gpus[0].slowed == {"sw_power_cap": 0.5}
    assert job.gpus[0].temperature == 79


def test_too_few_steps_give_no_verdict() -> None:
    state = seen("AdamW")
    process = first_process(state)
    process.steps.clear()
    process.steps.take(("training", "loader"), 1)
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert job.diagnosis.verdict == "too_few_steps"
    assert job.diagnosis.sentence.startswith("There are too few steps for a verdict: 1 training step in this time.")


THREADS = (
    "the thread that calls CUDA spends 60 % in compute, mostly waiting for the GPU; 40 % in other, mostly sleeping."
)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "threads",
            THREADS,
        ),
        ("signals", "it spends 60 % in compute; 40 % in other."),
    ],
)
def test_a_program_without_scopes_has_the_phases_of_its_thread_or_of_signals(source: str, sentence: str) -> None:
    process = SeenProcess({"process.pid": 1, "host.name": "node"}, command=("jax_job",))
    process.phases.update({("gpu_compute", source): 6.0, ("unknown", source): 4.0})
    if source == "threads":
        process.details.update({("gpu_compute", "gpu_wait", source): 6.0, ("unknown", "sleep", source): 4.0})
    diagnosis = diagnosis_of(JobGroup([process]), (), time_shares([process]), ())
    assert diagnosis.verdict == "no_scopes"
    assert diagnosis.sentence == f"This program has no PyTorch scopes, so its steps are unknown: {sentence}"


def test_missing_marks_are_said() -> None:
    state = seen("AdamW")
    first_process(state).missing_marks.add("backward")
    first_process(state).steps.clear()
    first_process(state).steps.take(("evaluation", "loader"), 40)
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert job.diagnosis.verdict == "marks_missing"
    assert "does not have the functions that show the phases" in job.diagnosis.sentence
    assert job.notes == ("Its PyTorch does not have all functions that show phases; missing: backward passes.",)


def test_sampled_operators_are_said_with_the_positions_that_are_unknown() -> None:
    state = seen("AdamW")
    first_process(state).has_sampled_operators = True
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    [note] = job.notes
    assert "operators were sampled" in note
    assert "forward passes without a DataLoader, losses, evaluation and inference" in note


def test_the_causes_and_the_step_times_leave_out_the_steps_with_lost_events() -> None:
    state = seen("stalls of 150 ms")
    [whole] = report_on(state, JobChoice(), circumstances()).jobs
    process = first_process(state)
    steps = process.trained
    lossy = steps // 4
    process.steps["training", "loader"] += lossy
    process.lossy_steps["training"] = lossy
    for _ in range(lossy):
        process.lossy_times["training"].add(3600.0 / lossy)
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert job.diagnosis == whole.diagnosis
    assert job.steps == whole.steps
    assert job.ranks[0].steps == steps + lossy
    share = percent(lossy / (steps + lossy))
    text = f"Events were lost in {lossy} of {steps + lossy} training steps ({share}); their time is in part unknown,"
    assert job.notes[0] == f"{text} and the causes and step times are those of the others."


def test_a_job_whose_causes_are_not_known_names_its_largest_positions() -> None:
    state = seen("stalls of 150 ms")
    for unknown, reason in (
        (Unknown.UNCERTAIN, "its 50 training steps differ too much to be certain"),
        (Unknown.GPU_WORK, "too little is known about the work of its GPU"),
        (None, "too few steps were seen from their begin to their end"),
    ):
        answer = JobAnswer(step=0.1, steps=50, best=0.1, unknown=unknown) if unknown else None
        first_process(state).answer = answer
        [job] = report_on(state, JobChoice(), circumstances()).jobs
        assert job.diagnosis.verdict == "none"
        assert job.answer is None
        assert job.diagnosis.sentence == (
            f"No cause can be named, because {reason}. Watch longer, with `--for`. Most of the time goes to data "
            "loading (67 %) and backward pass (14 %)."
        )


def test_waits_for_ranks_that_are_not_seen_are_the_lead() -> None:
    [job] = report("Python on rank 1", ranks=1).jobs
    assert job.diagnosis.sentence == (
        "Training waits for ranks that are not seen for 18.4 ms of each 52.8 ms step (35 %). Watch all ranks to know "
        "the reason."
    )


def test_a_late_rank_is_a_cause_or_is_said() -> None:
    state = simulated()
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert job.diagnosis.verdict == "straggler"
    assert job.diagnosis.sentence.startswith("The other ranks wait for rank 5, ")
    [seen_job] = state.jobs
    assert seen_job.answer is not None
    seen_job.answer = replace(seen_job.answer, causes=())
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert re.search(
        r"Rank 5 is late by 3\d\.\d ms in each step, for a reason that is not known\.", job.diagnosis.sentence
    )
    assert "is throttled 100 % of the time (heat)" in job.diagnosis.sentence


def test_steps_with_lost_events_give_no_verdict() -> None:
    state = seen("stalls of 150 ms")
    lossy = first_process(state).trained // 2
    first_process(state).lossy_steps["training"] = lossy
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert job.diagnosis.verdict == "lost_events"
    assert job.diagnosis.sentence.startswith(f"Events were lost in too many steps: in {lossy} of ")


def test_losses_in_an_evaluation_decide_nothing_about_the_training_steps() -> None:
    state = seen("stalls of 150 ms")
    first_process(state).lossy_steps |= {"training": 0, "evaluation": 150, "inference": 20, "between": 3}
    [job] = report_on(state, JobChoice(), circumstances()).jobs
    assert job.diagnosis.verdict == "input_bound"
    assert job.notes == ()


def test_notes_on_other_processes_stay_out_of_the_report_on_a_pid() -> None:
    state = seen("AdamW")
    pid = first_process(state).pid
    own = (f"Process {pid} (python) on node ended with exit code 1", "No GPU driver.")
    others = (
        f"Process {pid}0 (python) on node ended with exit code 1",
        f"Rank 3 (python3, pid {pid}1) on node was killed by SIGKILL",
        "Cannot inspect 3 processes: permission denied.",
    )
    watched = circumstances(notes=(*own, *others))
    assert report_on(state, JobChoice(pid=pid), watched).notes == own
    assert report_on(state, JobChoice(), watched).notes == (*own, *others)


BELOW = "Cannot watch 1 process in pid namespaces below this one. Run the collector in the host's pid namespace."


@pytest.mark.parametrize(("size", "notes"), [(2, ()), (3, (BELOW,))])
def test_notes_on_skipped_processes_stay_in_the_report_on_a_job_without_all_its_ranks(
    size: int, notes: tuple[str, ...]
) -> None:
    state = seen("gloo, DDP, a late rank", is_job=True)
    for process in state.processes:
        process.attributes["zernel.world_size"] = size
    pid = first_process(state).pid
    result = report_on(state, JobChoice(pid=pid), circumstances(notes=(BELOW,)))
    assert result.notes == notes
    missing = "Found 2 of its 3 ranks on this machine. For ranks on other machines, run the command there."
    assert (missing in result.jobs[0].notes) == bool(notes)


def test_a_pid_chooses_its_whole_job() -> None:
    state = seen("gloo, DDP, a late rank", is_job=True)
    pids = sorted(process.pid for process in state.processes)
    [job] = report_on(state, JobChoice(pid=pids[0]), circumstances()).jobs
    assert [rank.pid for rank in job.ranks] == pids
    assert report_on(state, JobChoice(pid=1), circumstances()).jobs == ()


def test_the_pid_of_a_launcher_chooses_its_job() -> None:
    state = seen("AdamW")
    first_process(state).ancestors = (700, 1)
    assert report_on(state, JobChoice(pid=700), circumstances()).jobs


@pytest.mark.parametrize("name", ["train.py", "trainer/localhost:29500", "python"])
def test_a_name_chooses_a_job(name: str) -> None:
    state = seen("gloo, DDP, a late rank", is_job=True)
    first_process(state).attributes["process.executable.name"] = "python"
    assert len(report_on(state, JobChoice(name=name), circumstances()).jobs) == 1
    assert report_on(state, JobChoice(name="other.py"), circumstances()).jobs == ()


def test_without_processes_there_are_no_jobs() -> None:
    assert report_on(watched_state(), JobChoice(), circumstances()).jobs == ()
