"""The report on programs without training steps."""

import json
from typing import Any

import pytest

from otel_zernel_commands.why.findings import WhyReport, report_on
from otel_zernel_commands.why.rendering import page, report_text
from otel_zernel_commands.why.rendering.as_json import report_json
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_commands.why.watch import SampledProgram, SampledThread, watched_state
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.frameworks import Framework
from otel_zernel_libraries.training.ledger import Activity
from tests.commands.why.gpus import gpu_batch, throttled
from tests.commands.why.recorded_runs import circumstances, first_process, seen

SECONDS = 5.0


def thread(tid: int, cpu: float, cpu_wait: float = 0.0, **waits: int) -> SampledThread:
    """A thread by its shares of `SECONDS` and its samples."""
    found = SampledThread(tid, f"thread {tid}", cpu * SECONDS, cpu_wait * SECONDS, SECONDS)
    found.waits.update({Activity(name): count for name, count in waits.items()})
    return found


def program(
    pid: int, *threads: SampledThread, cpus: float = 1.0, framework: Framework = Framework.XGBOOST, **more: Any
) -> SampledProgram:
    usual = {"command": ("python", f"/srv/fit_{pid}.py"), "ancestors": (7, 1), "cpus_allowed": 4}
    return SampledProgram(pid, **{**usual, **more}, framework=framework, cpus=cpus, watched=SECONDS, threads=[*threads])


def reported(*sampled: SampledProgram, choice: JobChoice | None = None, **more: Any) -> WhyReport:
    return report_on(watched_state(), choice or JobChoice(), circumstances(sampled=sampled, **more))


BUSY = thread(11, 0.9, 0.05, file=40, lock=10)


def test_it_says_what_the_busiest_thread_does_and_why_it_cannot_say_more() -> None:
    [job] = reported(program(10, thread(10, 0.0, lock=99), BUSY, cpus=0.9)).jobs
    assert job.title == "fit_10.py"
    assert job.diagnosis.verdict == "no_pytorch"
    assert job.diagnosis.sentence == (
        "This program has not loaded PyTorch, so its training steps are unknown; it uses XGBoost. "
        "It used 0.9 of 4 CPUs. Its busiest thread is on a CPU 90 % of the time and waits for a CPU 5.0 % of the time."
    )
    assert job.diagnosis.advice == ("A profile shows the functions that take the CPU: `py-spy top --pid 10`.",)
    assert [row.tid for row in job.threads] == [11, 10]
    assert job.threads[0].waits == pytest.approx({"cpu_wait": 0.05, "file": 0.04, "lock": 0.01})


def test_without_a_busy_thread_it_says_what_the_main_thread_waits_for() -> None:
    [job] = reported(
        program(10, thread(10, 0.001, socket=99), thread(11, 0.002, timer=99)), choice=JobChoice(pid=10)
    ).jobs
    assert job.diagnosis.sentence.endswith("Its main thread waits for the network (sockets) 100 % of the time.")
    assert job.diagnosis.advice == ()


@pytest.mark.parametrize(
    ("threads", "advice"),
    [
        ([thread(number, 0.3, 0.6) for number in range(10, 18)], "Its threads could use 7.2 CPUs, and it has 4: start"),
        ([thread(10, 0.3, 0.6)], "Other programs take its CPUs"),
        ([thread(10, 0.3, gil=9), thread(11, 0.3, gil=9)], "Another thread of the program holds Python's lock"),
        ([thread(10, 0.3, file=9)], "Use faster storage"),
    ],
)
def test_advice_reaches_what_the_busiest_thread_waits_for(threads: list[SampledThread], advice: str) -> None:
    [job] = reported(program(10, *threads)).jobs
    [sentence] = job.diagnosis.advice
    assert sentence.startswith(advice)


def test_a_program_that_has_pytorch_took_no_step() -> None:
    [job] = reported(program(10, BUSY, framework=Framework.PYTORCH), choice=JobChoice(pid=10)).jobs
    assert job.diagnosis.verdict == "no_steps"
    assert job.diagnosis.sentence.startswith("This program has loaded PyTorch, but took no training step in 5.00 s.")


def test_child_processes_belong_to_their_program() -> None:
    children = [program(pid, thread(pid, 0.5), ancestors=(10, 7, 1), cpus=0.5) for pid in (20, 21)]
    [job] = reported(*children, program(10, thread(10, 0.0, child=9), cpus=0.0)).jobs
    assert "It and its child processes (2) used 1.0 of 4 CPUs." in job.diagnosis.sentence
    assert {row.pid for row in job.threads} == {10, 20, 21}


def test_without_a_choice_programs_with_a_framework_are_shown() -> None:
    daemon = program(30, thread(30, 1.0), framework=Framework.NONE)
    idle = program(31, thread(31, 0.0, timer=9), cpus=0.01)
    assert [job.title for job in reported(daemon, idle, program(10, BUSY)).jobs] == ["fit_10.py"]
    assert [job.title for job in reported(daemon, idle).jobs] == ["fit_30.py"]
    assert [job.title for job in reported(daemon, idle, choice=JobChoice(name="fit_31.py")).jobs] == ["fit_31.py"]
    assert not reported(idle).jobs


def test_beside_a_job_only_programs_with_a_framework_are_shown() -> None:
    state = seen("AdamW")
    trainer = first_process(state).pid
    sampled = (
        program(trainer, BUSY, framework=Framework.PYTORCH),
        program(90, BUSY, ancestors=(trainer, 1), framework=Framework.SCIKIT_LEARN),
        program(91, BUSY, framework=Framework.NONE),
        program(92, BUSY, framework=Framework.JAX),
    )
    report = report_on(state, JobChoice(), circumstances(sampled=sampled))
    assert [job.diagnosis.verdict for job in report.jobs[1:]] == ["no_pytorch"]
    assert report.jobs[1].ranks[0].pid == 92
    assert len(report_on(state, JobChoice(pid=trainer), circumstances(sampled=sampled)).jobs) == 1


def test_text_json_and_page_have_its_threads() -> None:
    report = reported(program(10, *(thread(number, 0.5) for number in range(10, 20))))
    text = report_text(report, Terminal(100))
    assert "no steps in 5.00 s" in text
    assert "thread 10 (10): is on a CPU 50 %" in text
    assert "and 2 more threads, in --json" in text
    assert "Where" not in text
    [job] = json.loads(report_json(report))["jobs"]
    assert len(job["threads"]) == 10
    assert job["threads"][0] == {"pid": 10, "tid": 10, "name": "thread 10", "cpu": 0.5, "waits": {"unknown": 0.5}}
    assert "thread 19 (19): is on a CPU 50 %" in page(report)


def test_what_the_devices_side_cannot_say_is_a_sentence() -> None:
    state = watched_state()
    for batch in (*throttled(0, 10), *throttled(1, 10), gpu_batch(1, [("zernel.gpu.mig.enabled", 1.0, {})])):
        state.add(batch, 0.0)
    facts = circumstances(sampled=(program(10, BUSY),), on_rocm=frozenset({10}), runs_mps=True)
    [job] = report_on(state, JobChoice(), facts).jobs
    assert "and GPU 0 and GPU 1." in job.diagnosis.sentence
    assert job.notes == (
        "It uses AMD's GPUs (ROCm). Only NVIDIA's are watched, so the use of its devices is unknown.",
        "MIG divides GPU 1: the use of the whole board says little about the part of this job.",
        "Processes share its GPUs by CUDA MPS: what one of them does there cannot be told from the others.",
        "Process 10 uses 2 GPUs: its waits do not show for which of them it waits.",
    )
