"""Makes the report from everything that was seen."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from statistics import fmean, median

from otel_zernel_commands.why.findings.diagnosis import answer_of, diagnosis_of
from otel_zernel_commands.why.findings.groups import JobGroup, groups_of, same_names
from otel_zernel_commands.why.findings.programs import findings_on, programs_of
from otel_zernel_commands.why.findings.report import (
    ActivityTime,
    DeviceTime,
    GpuRow,
    JobFindings,
    JobStart,
    PositionTime,
    RankRow,
    StepSummary,
    TimeShare,
    WhyReport,
)
from otel_zernel_commands.why.watch import SampledProgram, StepBlock
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.job_environment import host_name
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.amounts import percent
from otel_zernel_libraries.training.ledger import Position, phase_at
from otel_zernel_libraries.training.names import PHASES, TRAINED
from otel_zernel_libraries.training.state import SeenGpu, SeenProcess, StepTimes, TrainingState
from otel_zernel_libraries.training.words import mark_names


def position_times(processes: Sequence[SeenProcess]) -> tuple[PositionTime, ...]:
    """The positions in the order of a step, each with its activities. Empty if no process has a ledger."""
    spent: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for process in processes:
        for (position, activity), seconds in process.ledger.items():
            spent[position][activity] = spent[position].get(activity, 0.0) + seconds
    total = sum(sum(times.values()) for times in spent.values())
    steps = sum(process.trained for process in processes)
    if not total:
        return ()

    def each(seconds: float) -> tuple[float, float]:
        return seconds / steps if steps else 0.0, seconds / total

    rows = []
    for position in sorted(spent, key=_order):
        times = sorted(spent[position].items(), key=lambda item: -item[1])
        activities = tuple(ActivityTime(activity, *each(seconds)) for activity, seconds in times if seconds)
        if activities:
            rows.append(
                PositionTime(position, phase_at(position), *each(sum(spent[position].values())), activities=activities)
            )
    return tuple(rows)


def device_time(processes: Iterable[SeenProcess], *, is_exact: bool = False) -> DeviceTime | None:
    """What the GPUs did, as a mean of the ranks that use one. None if none does. `is_exact`: by their own records."""
    using = [
        process
        for process in processes
        if process.trained and (process.gpu_busy or process.gpu_starved or process.gpu_undetermined)
    ]
    if not using:
        return None
    starved: defaultdict[str, float] = defaultdict(float)
    for process in using:
        for (position, _), seconds in process.gpu_starved.items():
            starved[position] += seconds / process.trained / len(using)
    return DeviceTime(
        busy=fmean(sum(process.gpu_busy.values()) / process.trained for process in using),
        starved=_in_order(starved),
        undetermined=fmean(sum(process.gpu_undetermined.values()) / process.trained for process in using),
        exact=is_exact,
    )


def _in_order(starved: Mapping[str, float]) -> dict[str, float]:
    return {position: starved[position] for position in sorted(starved, key=_order) if starved[position]}


_POSITIONS = [position.value for position in Position]


def _order(position: str) -> int:
    return _POSITIONS.index(position) if position in _POSITIONS else len(_POSITIONS)


_WARMING = 1.5
"""How much longer than a usual step the steps of a warm-up take, at least."""
_FEWEST = 3
"""Steps to know how long a usual one takes."""


def start_of(processes: Iterable[SeenProcess], since_ns: int, program_ns: int = 0) -> JobStart | None:
    """The start of the process whose first step came last. None if a process began before `since_ns` (Unix time), or
    took too few steps. `program_ns` is the start of the program that the command has started, if it has."""
    starts = [_start(process, program_ns or _created_ns(process), since_ns) for process in processes]
    known = [start for start in starts if start]
    return max(known, key=lambda process: process.first_step_after) if known and len(known) == len(starts) else None


def _start(process: SeenProcess, began_ns: int, since_ns: int) -> JobStart | None:
    steps = sorted((bar for bar in process.bars.bars if bar.kind in TRAINED), key=lambda bar: bar.start_ns)
    if began_ns < since_ns or len(steps) < _FEWEST:
        return None
    each = [bar.duration_ns / bar.steps / 1e9 for bar in steps]
    usual = median(each)
    warming = list(takewhile(lambda seconds: seconds > _WARMING * usual, each))
    return JobStart(
        first_step_after=max(steps[0].start_ns - began_ns, 0) / 1e9,
        first_step=each[0],
        warm_up_steps=sum(bar.steps for bar in steps[: len(warming)]),
        warm_up=sum(seconds - usual for seconds in warming),
    )


def _created_ns(process: SeenProcess) -> int:
    """When the process was created (Unix time); 0 if that is not known."""
    try:
        created = datetime.fromisoformat(str(process.attributes["process.creation.time"]))
    except (KeyError, ValueError):
        return 0
    return round(created.timestamp() * 1e9)


_SMALL = 0.005
"""Details below this share have no row of their own."""


def time_shares(processes: Sequence[SeenProcess]) -> tuple[TimeShare, ...]:
    """The phases in the order of a step, each followed by its details. Phases without time are left out."""
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    for process in processes:
        for key, seconds in known_times(process).items():
            spent[key] += seconds
    total, steps = sum(spent.values()), sum(process.trained for process in processes)
    rows: list[TimeShare] = []
    for phase in PHASES:
        details = {detail: seconds for (of, detail), seconds in spent.items() if of == phase and seconds}
        if details:
            rows.append(_row(phase, "", sum(details.values()), total, steps))
            of_phase = sorted(details.items(), key=lambda item: -item[1])
            rows += [_row(phase, detail, seconds, total, steps) for detail, seconds in of_phase if detail]
    return tuple(row for row in rows if not row.detail or row.share >= _SMALL)


def known_times(process: SeenProcess) -> Mapping[tuple[str, str], float]:
    """By phase and detail: s, by the best source. Phases by signals have an empty detail."""
    of_source = process.source
    details = {(phase, detail): s for (phase, detail, source), s in process.details.items() if source == of_source}
    return details or {(phase, ""): s for (phase, source), s in process.phases.items() if source == of_source}


def phase_shares(process: SeenProcess) -> dict[str, float]:
    """By phase: the share of the process's time."""
    times = known_times(process)
    total = sum(times.values())
    return {phase: sum(s for (of, _), s in times.items() if of == phase) / total for phase in PHASES} if total else {}


def _row(phase: str, detail: str, seconds: float, total: float, steps: int) -> TimeShare:
    return TimeShare(phase, detail, seconds / steps if steps else 0.0, seconds / total if total else 0.0)


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
    groups = [group for group in groups_of(state.processes, state.jobs) if group.is_chosen(choice)]
    twice = same_names(group.title for group in groups)
    gpus = sorted(state.gpus, key=_index)
    jobs = [_findings(group, gpus, circumstances, twice) for group in groups]
    jobs += list(_programs(state, choice, circumstances, gpus))
    used = {(row.host, row.index) for job in jobs for row in job.gpus}
    uses_gpu = bool(used) or any(job.device for job in jobs) or any(process.gpu for process in state.processes)
    notes = (*(circumstances.gpu_notes if uses_gpu else ()), *circumstances.notes)
    return WhyReport(
        started=datetime.fromtimestamp(circumstances.started_ns / 1e9, UTC).isoformat(timespec="seconds"),
        seconds=circumstances.seconds,
        is_interrupted=circumstances.is_interrupted,
        processes=circumstances.processes,
        jobs=tuple(jobs),
        gpus=tuple(_gpu(gpu) for gpu in gpus if (gpu.host, _index(gpu)) not in used),
        notes=tuple(note for note in notes if choice.pid is None or _is_about(note, groups)),
    )


def _findings(group: JobGroup, gpus: Iterable[SeenGpu], circumstances: Circumstances, twice: set[str]) -> JobFindings:
    counted = group.counted()
    processes = counted.processes
    times = StepTimes.joined(process.trained_times for process in processes)
    steps = StepSummary(
        count=times.count,
        mean=times.mean,
        p50=times.percentile(50.0),
        p90=times.percentile(90.0),
        p99=times.percentile(99.0),
        longest=times.longest,
        jitter=times.jitter,
    )
    pids = {process.pid for process in processes}
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
        cost=max((process.probe_share for process in group.processes if process.probe_share is not None), default=None),
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
    watched = (program for program in circumstances.sampled if program.watched >= _SHORTEST)
    sampled = [program for program in watched if not any(_is_part(program, group) for group in groups)]
    if choice.pid is not None:
        programs = programs_of(sampled) if not any(group.is_chosen(choice) for group in groups) else []
    else:
        busy = [program for program in programs_of(sampled) if program.cpus >= _BUSY or choice.name == program.title]
        known = [program for program in busy if program.frameworks]
        named = [program for program in (known or ([] if groups else busy)) if choice.name in (None, program.title)]
        programs = named[:_MOST_PROGRAMS]
    for program in programs:
        pids = {process.pid for process in program.processes}
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
        return any(len(group.processes) < _world_size(group.processes[0]) for group in groups)
    named = {int(pid) for pid in re.findall(r"\b(?:pid|process) (\d+)", note, re.IGNORECASE)}
    ranks = {int(rank) for rank in re.findall(r"^A data-loading worker .* of rank (\d+)", note)}
    ours = [process for group in groups for process in group.processes]
    is_ours = any(our.pid in named or our.rank in ranks or named.intersection(our.ancestors) for our in ours)
    return is_ours or not named


def _seconds(processes: Iterable[SeenProcess]) -> float:
    bars = [bar for process in processes for bar in process.bars.bars]
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
    hosts = sorted({process.host for process in processes})
    return ", ".join(hosts[:_HOSTS]) + (f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else "")


def _on_gpu(gpu: SeenGpu, processes: Iterable[SeenProcess]) -> tuple[int, ...] | None:
    """The ranks of these processes that use the GPU; None if none of the processes does."""
    using = [process for process in processes if gpu.host in ("", process.host) and process.pid in gpu.pids]
    return tuple(sorted(process.rank for process in using if process.rank is not None)) if using else None


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
    marks = {mark for process in group.processes for mark in process.missing_marks}
    if marks:
        yield f"Its PyTorch does not have all functions that show phases; missing: {mark_names(marks)}."
    if any(process.has_sampled_operators for process in group.processes):
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
    if skipped := sum(process.trained_skipped for process in group.processes):
        share = percent(skipped / max(steps, 1))
        yield f"Its steps are so short that {share} of them were not read one by one: they count like the others."
    drawn = sum(
        bar.steps
        for process in group.processes
        for bar in process.bars.bars
        if bar.kind in ("training", "accumulation")
    )
    if steps > drawn + ranks and drawn:
        yield f"The time line shows {drawn:,} of {steps:,} steps{'' if lossy else '; all of them are in the numbers'}."
