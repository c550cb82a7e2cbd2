"""One run of the command: the checks before it, the watch, and the report."""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TextIO

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry
from otel_zernel.text import printable, quoted
from otel_zernel_commands.why import watch
from otel_zernel_commands.why.findings import Circumstances, JobFindings, WhyReport, groups_of, report_on
from otel_zernel_commands.why.prerequisites import check_prerequisites, gpu_notes, sentence
from otel_zernel_commands.why.progress import ReplayProgress, WatchProgress
from otel_zernel_commands.why.started_program import StartedProgram
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.pid_namespace import unseen_processes
from otel_zernel_libraries.training.chosen_jobs import ancestors_of
from otel_zernel_libraries.training.state import TrainingState

_LOOKED_FOR = "a process that uses PyTorch, CUDA or NCCL and takes training steps"
_NO_STEP = "none took a training step"
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What to watch."""

    seconds: float
    choice: JobChoice
    program: StartedProgram | None = None
    """If the command starts the program that it watches, the choice is its pid."""
    slices: watch.Slices | None = None
    """Takes the steps and their parts, if a trace of them is wanted."""


def watched_report(options: WatchOptions, installed: Registry, progress: TextIO) -> WhyReport:
    """Watches with the components of `begun`, and returns the report. Raises `CannotStart` if the machine cannot be
    watched or has no such job.

    A program that has been started runs on, unless a signal has ended the watch.
    """
    started, choice, program = time.time_ns(), options.choice, options.program
    sampler = watch.ThreadSampler(partial(_chosen, options) if choice.pid else watch.programs)
    if not choice.pid and not watch.programs() and not check_prerequisites(installed):
        unseen = unseen_processes()
        where = "that are seen" if unseen else "of this machine"
        count = watch.count_processes()
        sentence = f"no training job is running: none of the {count} processes {where} uses PyTorch, CUDA or NCCL"
        raise CannotStart(f"{sentence}. {unseen}" if unseen else sentence)
    state, attached, blocks = watch.watched_state(watch.command_of, ancestors_of), Event(), watch.StepBlocks()

    def arrived(batch: Batch) -> None:
        if watch.is_reading(batch):
            attached.set()
        if options.slices is not None:
            options.slices.take(batch)
        blocks.take(state)

    may_show_steps = (
        partial(_family_shows_steps, choice.pid) if choice.pid else lambda: watch.shows_steps(watch.programs())
    )
    following = WatchProgress(progress, state, choice, watch.is_running, may_show_steps, program)
    settings = watch.watch_settings(
        options.seconds, watch.collecting(state, arrived), installed, starts_program=program is not None
    )
    try:
        with watch.sampling(sampler, lambda: following.found_steps):
            watching = watch.watch(settings, options.seconds, following, attached)
    finally:
        following.clear()
    if watching.obstacle:
        check_prerequisites(installed)  # it says in one sentence what to do
        raise CannotStart(f"this machine's processes cannot be watched: {watching.obstacle}")
    if program and watching.ended_by:
        program.stop(watching.ended_by)
    program_ns = program.started_ns if program else 0
    circumstances = _circumstances(started, installed, watching, sampler)
    report = report_on(state, choice, replace(circumstances, program_ns=program_ns, blocks_of=blocks.of))
    if not report.jobs:
        raise CannotStart(_no_job(state, options, watching))
    return replace(report, jobs=tuple(map(_with_others, report.jobs)))


def _with_others(job: JobFindings) -> JobFindings:
    """A job with what other programs say of it: py-spy of processes without lines of code, and NCCL of one that
    hangs."""
    if not job.hang:
        unread = next((rank.pid for rank in job.ranks if rank.steps and not rank.code), 0)
        note = watch.py_spy_note(unread) if unread else ""
        return replace(job, notes=(*job.notes, note)) if note else job
    if job.hang.is_stop:
        return job
    code = {rank.pid: watch.py_spy_code(rank.pid) for rank in job.hang.ranks if rank.pid and not rank.code}
    ranks = tuple(replace(rank, code=rank.code or code.get(rank.pid, ())) for rank in job.hang.ranks)
    read = ", ".join(str(pid) for pid, lines in code.items() if lines)
    notes = [f"py-spy has read the lines of code of pid {read}: the receiver cannot read its Python."] if read else []
    notes += watch.nccl_notes(rank.pid for rank in ranks)
    return replace(job, hang=replace(job.hang, ranks=ranks), notes=(*job.notes, *notes))


def replayed_report(path: Path, name: str | None, slices: watch.Slices | None, progress: TextIO) -> WhyReport:
    """Replays a recording, and returns the report on its jobs, or on those with this name. Raises `CannotStart` if it
    has none."""
    state, blocks, choice = watch.watched_state(), watch.StepBlocks(), JobChoice(name=name)

    def arrived(batch: Batch) -> None:
        if slices is not None:
            slices.take(batch)
        blocks.take(state)

    following = ReplayProgress(progress, path, state)
    try:
        replaying = watch.replay(
            watch.replay_settings(path, watch.collecting(state, arrived), Registry.installed()), following.show
        )
    finally:
        following.clear()
    bars = [bar for process in state.processes for bar in process.bars.bars]
    begin = min((bar.start_ns for bar in bars), default=0)
    circumstances = Circumstances(
        started_ns=begin,
        seconds=(max((bar.start_ns + bar.duration_ns for bar in bars), default=0) - begin) / 1e9,
        is_interrupted=replaying.is_interrupted,
        processes=len(state.processes),
        notes=tuple(replaying.warnings),
        blocks_of=blocks.of,
    )
    report = report_on(state, choice, circumstances)
    if not report.jobs:
        join = ", ".join(group.title for group in groups_of(state.processes, state.jobs)[:_MOST_NAMES])
        raise CannotStart(
            f"{printable(str(path))} has no training job with the name {quoted(name)}; found: {join or 'none'}"
            if name
            else f"{printable(str(path))} has no training steps: record the pipeline of `ebpf` with the exporter `file`"
        )
    return report


def track(report: WhyReport, program: list[str] | None, messages: TextIO) -> None:
    """Writes summaries into the runs of the jobs. `program` is the command line of the one that was started."""
    from otel_zernel_commands.why.tracking import sent

    for job in report.jobs:
        for message in sent(job, program):
            print(message, file=messages)


def _chosen(options: WatchOptions) -> list[int]:
    """The processes whose threads are sampled: none as long as the program is held."""
    is_held = options.program is not None and not options.program.started_ns
    return [] if is_held or options.choice.pid is None else watch.family_of(options.choice.pid)


def _family_shows_steps(pid: int) -> bool:
    return watch.shows_steps(watch.family_of(pid))


def _circumstances(
    started_ns: int, installed: Registry, watching: watch.Watching, sampler: watch.ThreadSampler
) -> Circumstances:
    sampled = sampler.programs()
    warnings = [
        warning for warning in watching.warnings if not warning.startswith("No GPUs")
    ]  # `gpu_notes` has the same
    return Circumstances(
        started_ns=started_ns,
        seconds=watching.elapsed or watching.searched,
        is_interrupted=watching.is_interrupted,
        processes=watch.count_processes(),
        notes=tuple(map(sentence, warnings)),
        gpu_notes=gpu_notes(installed),
        sampled=tuple(sampled),
        on_rocm=frozenset(program.pid for program in sampled if watch.uses_rocm(program.pid)),
        runs_mps=watch.runs_mps(),
    )


def _no_job(state: TrainingState, options: WatchOptions, watching: watch.Watching) -> str:
    """The sentence for the user who gets no report."""
    groups = groups_of(state.processes, state.jobs)
    join = ", ".join(f"{group.title} (pid {group.processes[0].pid})" for group in groups[:_MOST_NAMES])
    in_time = f"in {watching.searched + watching.elapsed:.0f} s"
    if options.choice.name:
        return f"no training job has the name {quoted(options.choice.name)} {in_time}; found: {join or 'none'}"
    if options.program:
        return f"the program ended {in_time} with status {options.program.status}, and took no training step"
    if options.choice.pid:
        return f"process {options.choice.pid} took no training step {in_time}; found: {join or 'none'}"
    idle = sum(1 for process in state.processes if process.phases)
    uses = "uses" if idle == 1 else "use"
    using = f"{idle} of them {uses} PyTorch, CUDA or NCCL, but took no training step" if idle else _NO_STEP
    return (
        f"no training job was found {in_time}: looked for {_LOOKED_FOR} among {watch.count_processes()} processes; "
        f"{using}; if its steps are long, watch longer with --for 5m"
    )
