"""The report on a program without training steps: what its busiest threads do, and why no more can be said."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from otel_zernel.text import visible
from otel_zernel_commands.why.findings.report import Diagnosis, GpuRow, JobFindings, RankRow, StepSummary, ThreadRow
from otel_zernel_commands.why.watch import SampledProgram
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.frameworks import Framework
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.programs import script_of
from otel_zernel_libraries.training.words import activity_words, verdict_words

_MOST_THREADS = 32
"""Threads in the report. The text shows the first ones."""
_SHOWN = 0.05
"""A part of a thread's time that the sentence names, at least."""
_WORTH = 0.2
"""A part of the busiest thread's time that is worth advice."""
_NO_STEPS = StepSummary(count=0, mean=0.0, p50=0.0, p90=0.0, p99=0.0, longest=0.0, jitter=0.0)
_ON_PYTORCH = frozenset({Framework.PYTORCH, Framework.VLLM})


@dataclass(frozen=True, slots=True)
class Program:
    """A process and its descendants."""

    processes: Sequence[SampledProgram]
    """The first process, and then the others."""

    @property
    def pid(self) -> int:
        """The pid of the first process."""
        return self.processes[0].pid

    @property
    def title(self) -> str:
        """The program's script, or the name of its executable."""
        return visible(script_of(self.processes[0].command) or f"process {self.pid}")

    @property
    def cpus(self) -> float:
        """The CPUs that it used, on average."""
        return sum(process.cpus for process in self.processes)

    @property
    def demand(self) -> float:
        """The CPUs that it could use: the time of its threads on a CPU and in the queue for one."""
        threads = (thread for process in self.processes for thread in process.threads)
        return sum((thread.cpu + thread.cpu_wait) / thread.watched for thread in threads)

    @property
    def frameworks(self) -> list[Framework]:
        """The frameworks that its processes have loaded."""
        return sorted({process.framework for process in self.processes} - {Framework.NONE})


def findings_on(
    program: Program, gpus: Sequence[GpuRow], host: str, seconds: float, notes: Iterable[str] = ()
) -> JobFindings:
    """The report on one program. `gpus` are those that it uses."""
    threads = tuple(_threads(program.processes))[:_MOST_THREADS]
    used_pytorch = not _ON_PYTORCH.isdisjoint(program.frameworks)
    verdict = "no_steps" if used_pytorch else "no_pytorch"
    allowed = max(process.cpus_allowed for process in program.processes)
    sentence = " ".join((_why_no_more(program, verdict, seconds), _what(program, threads, gpus, allowed)))
    evidence = [("library", " and ".join(program.frameworks) or "none that is known")]
    evidence += [("CPUs", f"{program.cpus:.2f} used of {allowed}")]
    evidence += [("processes", f"{len(program.processes)}")] if len(program.processes) > 1 else []
    return JobFindings(
        title=program.title,
        host=host,
        world_size=1,
        ranks=(RankRow(rank=None, pid=program.pid, steps=0, p50=0.0, p99=0.0, shares={}, lateness=None),),
        seconds=seconds,
        steps=_NO_STEPS,
        shares=(),
        diagnosis=Diagnosis(verdict, sentence, tuple(evidence), tuple(_advice(threads, program.demand, allowed))),
        gpus=tuple(gpus),
        notes=tuple(notes),
        threads=threads,
    )


def _threads(processes: Iterable[SampledProgram]) -> list[ThreadRow]:
    rows = [
        ThreadRow(
            pid=process.pid,
            tid=thread.tid,
            name=visible(thread.name),
            cpu=min(thread.cpu / thread.watched, 1.0),
            waits={what.value: share for what, share in thread.shares.items() if share},
        )
        for process in processes
        for thread in process.threads
    ]
    first = rows[0].tid if rows else 0
    return sorted(rows, key=lambda row: (-row.cpu if row.cpu >= _SHOWN else 0.0, row.tid != first))


def _why_no_more(program: Program, verdict: str, seconds: float) -> str:
    text = verdict_words(verdict).sentence
    if verdict == "no_steps":
        return f"{text} in {amount(seconds)}."
    used = program.frameworks
    return f"{text}; it uses {' and '.join(used)}." if used else f"{text}."


def _what(program: Program, threads: Sequence[ThreadRow], gpus: Sequence[GpuRow], allowed: int) -> str:
    """What it used, and what its busiest thread did."""
    those = f"It and its child processes ({len(program.processes) - 1})" if len(program.processes) > 1 else "It"
    on_gpu = f", and {_listed(f'GPU {gpu.index}' for gpu in gpus)}" if gpus else ""
    used = f"{those} used {program.cpus:.1f} of {allowed} CPUs{on_gpu}."
    if not threads:
        return used
    row = threads[0]
    parts = [("is on a CPU", row.cpu), *((activity_words(name), share) for name, share in row.waits.items())]
    named = [f"{text} {percent(share)} of the time" for text, share in sorted(parts, key=lambda part: -part[1])[:3]
             if share >= _SHOWN]  # fmt: skip
    which = "busiest" if row.cpu >= _SHOWN else "main"
    return f"{used} Its {which} thread {_listed(named)}." if named else used


def _advice(threads: Sequence[ThreadRow], demand: float, allowed: int) -> Iterator[str]:
    """What the busiest thread would gain from."""
    if not threads:
        return
    row = threads[0]
    if row.waits.get(Activity.CPU_WAIT, 0.0) >= _WORTH:
        if demand > allowed:
            yield (
                f"Its threads could use {demand:.1f} CPUs, and it has {allowed}: start fewer (`OMP_NUM_THREADS`, "
                "`n_jobs`, `nthread`)."
            )
        else:
            yield "Other programs take its CPUs: stop them, or give them other CPUs (`taskset`)."
    if row.waits.get(Activity.GIL, 0.0) >= _WORTH:
        yield "Another thread of the program holds Python's lock (GIL): move one of them to a process of its own."
    if row.waits.get(Activity.FILE, 0.0) >= _WORTH:
        yield "Use faster storage, larger files, or keep the data in memory."
    if row.cpu >= 0.5:
        yield f"A profile shows the functions that take the CPU: `py-spy top --pid {row.pid}`."


def _listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *rest, last = list(words)
    return f"{', '.join(rest)} and {last}" if rest else last


def programs_of(sampled: Iterable[SampledProgram]) -> list[Program]:
    """The processes as programs: each with its descendants. The busiest program first."""
    by_pid = {program.pid: program for program in sampled}
    families: dict[int, list[SampledProgram]] = {}
    for process in by_pid.values():
        first = next((pid for pid in reversed(process.ancestors) if pid in by_pid), process.pid)
        families.setdefault(first, []).append(process)
    programs = [
        Program(sorted(family, key=lambda program: (program.pid != first, -program.cpus)))
        for first, family in families.items()
    ]
    return sorted(programs, key=lambda program: -program.cpus)
