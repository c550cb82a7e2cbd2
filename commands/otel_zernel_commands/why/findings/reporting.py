"""Makes the report from everything that was seen."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from otel_zernel_commands.why.findings.diagnosis import answer_of, diagnosis_of
from otel_zernel_commands.why.findings.groups import JobGroup, groups_of, same_names
from otel_zernel_commands.why.findings.programs import findings_on, programs_of
from otel_zernel_commands.why.findings.report import GpuRow, JobFindings, RankRow, StepSummary, WhyReport
from otel_zernel_commands.why.findings.shares import phase_shares, time_shares
from otel_zernel_commands.why.findings.start import start_of
from otel_zernel_commands.why.findings.times import device_time, position_times
from otel_zernel_commands.why.watch import SampledProgram, StepBlock
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.job_environment import host_name
from otel_zernel_libraries.training import mark_names, semconv
from otel_zernel_libraries.training.amounts import percent
from otel_zernel_libraries.training.state import SeenGpu, SeenProcess, StepTimes, TrainingState

_HOSTS = 3
"""Machines that a title names."""
_SKIPPED = ("Cannot inspect ", "Cannot watch ")
"""Notes on processes that the receiver skips. They may be those that a report lacks."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts about a watch that are no measurements."""

    started_ns: int
    """Unix time."""
    seconds: float
    is_interrupted: bool
    processes: int
    """Processes of the circumstances."""
    notes: tuple[str, ...] = ()
    gpu_notes: tuple[str, ...] = ()
    """Those on what cannot be seen of GPUs."""
    sampled: tuple[SampledProgram, ...] = ()
    """Processes whose threads were sampled."""
    on_rocm: frozenset[int] = frozenset()
    """The pids of those that use AMD's GPUs."""
    blocks_of: Callable[[SeenProcess], tuple[StepBlock, ...]] = lambda _: ()
    """The steps of a process in blocks of time."""
    program_ns: int = 0
    """When the command started the program that it watches (Unix time); 0 if it started none."""
    runs_mps: bool = False
    """Whether processes share GPUs by NVIDIA's Multi-Process Service."""


def report_on(state: TrainingState, choice: JobChoice, circumstances: Circumstances) -> WhyReport:
    """The report on the jobs that `choice` includes."""
    groups = [one for one in groups_of(state.processes, state.jobs) if one.is_chosen(choice)]
    twice = same_names(one.title for one in groups)
    gpus = sorted(state.gpus, key=_index)
    jobs = [_findings(group, gpus, circumstances, twice) for group in groups]
    jobs += list(_programs(state, choice, circumstances, gpus))
    used = {(row.host, row.index) for job in jobs for row in job.gpus}
    uses_gpu = bool(used) or any(job.device for job in jobs) or any(one.gpu for one in state.processes)
    notes = (*(circumstances.gpu_notes if uses_gpu else ()), *circumstances.notes)
    return WhyReport(
        started=datetime.fromtimestamp(circumstances.started_ns / 1e9, UTC).isoformat(timespec="seconds"),
        seconds=circumstances.seconds,
        is_interrupted=circumstances.is_interrupted,
        processes=circumstances.processes,
        jobs=tuple(jobs),
        gpus=tuple(_gpu(one) for one in gpus if (one.host, _index(one)) not in used),
        notes=tuple(one for one in notes if choice.pid is None or _is_about(one, groups)),
    )


def _findings(group: JobGroup, gpus: Iterable[SeenGpu], circumstances: Circumstances, twice: set[str]) -> JobFindings:
    counted = group.counted()
    processes = counted.processes
    times = StepTimes.joined(one.trained_times for one in processes)
    steps = StepSummary(
        count=times.count,
        mean=times.mean,
        p50=times.percentile(50.0),
        p90=times.percentile(90.0),
        p99=times.percentile(99.0),
        longest=times.longest,
        jitter=times.jitter,
    )
    pids = {one.pid for one in processes}
    used = tuple(_gpu(gpu, ranks) for gpu in gpus if (ranks := _on_gpu(gpu, processes)) is not None)
    title = f"{group.title} ({processes[0].pid})" if group.title in twice else group.title
    spent, shares = position_times(group.processes), time_shares(group.processes)
    lateness = group.job.lateness if group.job else {}
    answer = answer_of(group)
    return JobFindings(
        title=title,
        host=_hosts(processes),
        world_size=_world_size(processes[0]),
        ranks=tuple(
            map(
                partial(_rank, lateness=lateness, blocks_of=circumstances.blocks_of),
                *(group.processes, processes),
            )
        ),
        seconds=_seconds(group.processes) or circumstances.seconds,
        steps=steps,
        shares=shares,
        diagnosis=diagnosis_of(group, spent, shares, used),
        answer=answer,
        hang=group.hang.hang if group.hang else None,
        times=spent,
        device=device_time(group.processes, is_exact=bool(answer and answer.device and answer.device.exact)),
        gpus=used,
        cost=max((one.probe_share for one in group.processes if one.probe_share is not None), default=None),
        start=start_of(group.processes, circumstances.started_ns, circumstances.program_ns),
        notes=(*_notes(group), *device_notes(pids, gpus, circumstances)),
    )


_MOST_PROGRAMS = 4
_SHORTEST = 0.5
"""Seconds of a program, at least: a few looks at its threads say nothing."""
_BUSY = 0.05
"""CPUs that a program uses, at least, if nobody has asked for it."""


def _programs(
    state: TrainingState, choice: JobChoice, circumstances: Circumstances, gpus: Sequence[SeenGpu]
) -> Iterator[JobFindings]:
    """The programs without steps: the one that the user chose; else those with a framework, or the busiest ones."""
    groups = groups_of(state.processes, state.jobs)
    watched = (one for one in circumstances.sampled if one.watched >= _SHORTEST)
    sampled = [one for one in watched if not any(_is_part(one, group) for group in groups)]
    if choice.pid is not None:
        programs = programs_of(sampled) if not any(group.is_chosen(choice) for group in groups) else []
    else:
        busy = [one for one in programs_of(sampled) if one.cpus >= _BUSY or choice.name == one.title]
        known = [one for one in busy if one.frameworks]
        named = [one for one in (known or ([] if groups else busy)) if choice.name in (None, one.title)]
        programs = named[:_MOST_PROGRAMS]
    for program in programs:
        pids = {one.pid for one in program.processes}
        used = [_gpu(gpu) for gpu in gpus if gpu.pids.keys() & pids]
        notes = device_notes(pids, gpus, circumstances)
        yield findings_on(program, used, host_name(), program.processes[0].watched, notes)


def _is_part(process: SampledProgram, group: JobGroup) -> bool:
    """Whether the process is one of the job, launched it, or was started by it."""
    return group.is_chosen(JobChoice(process.pid, parents=frozenset(process.ancestors)))


def device_notes(pids: Collection[int], gpus: Iterable[SeenGpu], circumstances: Circumstances) -> Iterator[str]:
    """What cannot be said of the devices of these processes."""
    if not circumstances.on_rocm.isdisjoint(pids):
        yield "It uses AMD's GPUs (ROCm). Only NVIDIA's are watched, so the use of its devices is unknown."
    used = [gpu for gpu in gpus if gpu.pids.keys() & set(pids)]
    if divided := [gpu for gpu in used if gpu.values.get("mig")]:
        numbers = ", ".join(str(gpu.index) for gpu in divided)
        yield f"MIG divides GPU {numbers}: the use of the whole board says little about the part of this job."
    if used and circumstances.runs_mps:
        yield "Processes share its GPUs by CUDA MPS: what one of them does there cannot be told from the others."
    counts = Counter(pid for gpu in used for pid in gpu.pids if pid in pids)
    if several := sorted(pid for pid, count in counts.items() if count > 1):
        yield f"Process {several[0]} uses {counts[several[0]]} GPUs: its waits do not show for which of them it waits."


def _is_about(note: str, groups: Iterable[JobGroup]) -> bool:
    """Whether a note may concern these jobs: it names one of their processes, or no process."""
    if note.startswith(_SKIPPED):
        return any(len(one.processes) < _world_size(one.processes[0]) for one in groups)
    named = {int(pid) for pid in re.findall(r"\b(?:pid|process) (\d+)", note, re.IGNORECASE)}
    ranks = {int(rank) for rank in re.findall(r"^A data-loading worker .* of rank (\d+)", note)}
    ours = [one for group in groups for one in group.processes]
    is_ours = any(one.pid in named or one.rank in ranks or named.intersection(one.ancestors) for one in ours)
    return is_ours or not named


def _seconds(processes: Iterable[SeenProcess]) -> float:
    bars = [bar for one in processes for bar in one.bars.bars]
    return (max(bar.end_ns for bar in bars) - min(bar.start_ns for bar in bars)) / 1e9 if bars else 0.0


def _world_size(process: SeenProcess) -> int:
    size = process.attributes.get(semconv.WORLD_SIZE, 1)
    return size if isinstance(size, int) and process.rank is not None else 1


def _rank(
    process: SeenProcess,
    counted: SeenProcess,
    lateness: Mapping[int, float],
    blocks_of: Callable[[SeenProcess], tuple[StepBlock, ...]],
) -> RankRow:
    """The row of a process. `counted` is the same process without the steps that do not count."""
    times = counted.trained_times
    return RankRow(
        rank=process.rank,
        pid=process.pid,
        steps=process.trained,
        p50=times.percentile(50.0),
        p99=times.percentile(99.0),
        shares=phase_shares(counted),
        lateness=lateness.get(process.rank) if process.rank is not None else None,
        blocks=blocks_of(process),
        bars=tuple(sorted(process.bars.bars, key=lambda bar: bar.start_ns)),
        code=process.code,
    )


def _hosts(processes: Iterable[SeenProcess]) -> str:
    """`node-0, node-1`"""
    hosts = sorted({one.host for one in processes})
    return ", ".join(hosts[:_HOSTS]) + (f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else "")


def _on_gpu(gpu: SeenGpu, processes: Iterable[SeenProcess]) -> tuple[int, ...] | None:
    """The ranks of these processes that use the GPU; None if none of the processes does."""
    using = [one for one in processes if gpu.host in ("", one.host) and one.pid in gpu.pids]
    return tuple(sorted(one.rank for one in using if one.rank is not None)) if using else None


def _gpu(gpu: SeenGpu, ranks: tuple[int, ...] = ()) -> GpuRow:
    utilization, memory, power = (gpu.means[name].mean for name in ("utilization", "memory_utilization", "power"))
    temperature = gpu.means["temperature"].largest if gpu.means["temperature"].count else None
    slowed, xids = gpu.slowed(), gpu.xids()
    return GpuRow(
        gpu.host,
        ranks,
        _index(gpu),
        gpu.name,
        utilization,
        memory,
        power,
        temperature,
        slowed,
        xids,
        dict(gpu.xid_times),
    )


def _index(gpu: SeenGpu) -> int:
    return -1 if gpu.index is None else gpu.index


def _notes(group: JobGroup) -> Iterable[str]:
    marks = {mark for one in group.processes for mark in one.missing_marks}
    if marks:
        yield f"Its PyTorch does not have all functions that show phases; missing: {mark_names(marks)}."
    if any(one.has_sampled_operators for one in group.processes):
        yield (
            "Probes took more than a tenth of a CPU, so operators were sampled for some time. Unknown in it: "
            "forward passes without a DataLoader, losses, evaluation and inference."
        )
    size, ranks, answer = _world_size(group.processes[0]), len(group.processes), answer_of(group)
    if ranks < size and not (answer and answer.ranks_seen < answer.ranks_expected):  # else the answer says it
        yield f"Found {ranks} of its {size} ranks on this machine. For ranks on other machines, run the command there."
    steps, lossy = group.trained, group.lossy
    if lossy:
        others = "their time is in part unknown"
        result = others if group.is_lossy else f"{others}, and the causes and step times are those of the others"
        yield f"Events were lost in {lossy} of {steps} training steps ({percent(lossy / max(steps, 1))}); {result}."
    if skipped := sum(one.trained_skipped for one in group.processes):
        share = percent(skipped / max(steps, 1))
        yield f"Its steps are so short that {share} of them were not read one by one: they count like the others."
    drawn = sum(
        bar.steps for one in group.processes for bar in one.bars.bars if bar.kind in ("training", "accumulation")
    )
    if steps > drawn + ranks and drawn:
        yield f"The time line shows {drawn:,} of {steps:,} steps{'' if lossy else '; all of them are in the numbers'}."
