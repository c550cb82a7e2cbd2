"""The processes, GPUs and jobs of a training as objects of the live state: docs/development/live_state.md has them.

A column over time is a second of arrivals: the heat of step durations, and the mean phase shares.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from otel_zernel.batch import Batch
from otel_zernel_libraries.serving.api.answers import json_bytes
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import CodeTime, JobAnswer, label_of, lead_of, ranks_seen, verdict_of
from otel_zernel_libraries.training.durations import RecentDurations, value_of
from otel_zernel_libraries.training.hangs import SeenHang, hang_advice, hang_sentences
from otel_zernel_libraries.training.names import PHASES, TRAINED, best_source
from otel_zernel_libraries.training.points import LONGEST_TEXT
from otel_zernel_libraries.training.programs import title_of
from otel_zernel_libraries.training.state import (
    PASSES,
    ProcessIncrease,
    SeenGpu,
    SeenJob,
    SeenProcess,
    TrainingState,
    known_sources,
)
from otel_zernel_libraries.training.verdicts import PHASE_OF

_LASTS: Final = 1.0
"""Seconds that a column collects what arrives: the reports of many ranks come one after the other."""
BOUNDS: Final = tuple(float(f"{0.0005 * 2 ** (at / 6):.4g}") for at in range(1, 129))
"""The upper bounds (s) of the 128 buckets of a column: 0.5 ms to 22 minutes, 12 % each. The last one has all above."""
HEAT_LENGTH: Final = 200
SHARES_LENGTH: Final = 600


class ColumnHistory:
    """Closed columns `[time_ms, ...]` of one job, kept as JSON: lists take five times as much memory."""

    def __init__(self, most: int) -> None:
        self._closed: deque[bytes] = deque(maxlen=most)
        self._new: deque[bytes] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._closed)

    def add_if(self, column: list[Any] | None) -> None:
        """Adds a column, if there is one."""
        if column:
            encoded = json_bytes(column)
            self._closed.append(encoded)
            self._new.append(encoded)

    def take_new(self) -> list[bytes]:
        """The columns since the last call."""
        new = list(self._new)
        self._new.clear()
        return new

    def as_json(self) -> bytes:
        """All columns, the oldest first."""
        return b"[%s]" % b",".join(self._closed)


class JobColumns:
    """The columns of all jobs, by id. Times are monotonic, in s."""

    def __init__(self) -> None:
        self.heat: dict[str, ColumnHistory] = {}
        self.shares: dict[str, ColumnHistory] = {}
        self._settled = -math.inf
        self._opened: float | None = None
        """When the first data of the open column arrived."""

    def add_to(self, state: TrainingState, batch: Batch, now: float) -> None:
        """Adds a batch to the state. It belongs to the open column. Raises `DecodeError`."""
        if now - self._settled >= _LASTS:
            self.settle(state, now)
        try:
            state.add(batch, now)
        finally:
            if self._opened is None and any(process.increase for process in state.processes):
                self._opened = now

    def settle(self, state: TrainingState, now: float) -> None:
        """Settles the state, closes the open column once its second is over, and forgets the jobs that have left.

        Processes that wait for their job are in the next column.
        """
        self._settled = now
        state.settle(now)
        if self._opened is not None and now - self._opened >= _LASTS:
            self._close(state)
            self._opened = now if any(process.increase for process in state.processes) else None
        jobs = {process.job for process in state.processes} | {job.id for job in state.jobs}
        for histories in (self.heat, self.shares):
            for id_ in histories.keys() - jobs:
                del histories[id_]

    def _close(self, state: TrainingState) -> None:
        by_job: dict[str, list[ProcessIncrease]] = {}
        for process in state.processes:
            if process.job and process.increase:
                by_job.setdefault(process.job, []).append(process.increase)
                process.increase = None
        for job, increases in by_job.items():
            self.heat.setdefault(job, ColumnHistory(HEAT_LENGTH)).add_if(_heat_of(increases))
            self.shares.setdefault(job, ColumnHistory(SHARES_LENGTH)).add_if(_shares_of(increases))


def _heat_of(increases: Sequence[ProcessIncrease]) -> list[Any] | None:
    """`[time_ms, first bucket, [count, ...]]` of the ranks of a job; None without steps."""
    counts: Counter[int] = Counter()
    for increase in increases:
        for index, count in increase.steps.items():
            counts[min(bisect_left(BOUNDS, value_of(index)), len(BOUNDS) - 1)] += count
    if not counts:
        return None
    buckets = range(min(counts), max(counts) + 1)
    return [_time_ms(increases), buckets.start, [counts[at] for at in buckets]]


def _shares_of(increases: Sequence[ProcessIncrease]) -> list[Any] | None:
    """`[time_ms, [ratio, ...]]`: the shares of the phases, the mean of the ranks of a job; None without times."""
    best = [_best(increase.grown) for increase in increases if increase.grown]
    if not best:
        return None
    means = (sum(spent[at] / sum(spent) for spent in best) / len(best) for at in range(len(PHASES)))
    return [_time_ms(increases), [round(mean, 4) for mean in means]]


def _time_ms(increases: Iterable[ProcessIncrease]) -> int:
    return max(increase.time_ns for increase in increases) // 1_000_000


def _best(by_source: dict[str, list[float]]) -> list[float]:
    """The times by the best source that knows a phase: the order of the sources is that of their precision."""
    ordered = [by_source[source] for source in ("scopes", "threads", "signals") if source in by_source]
    return next((spent for spent in ordered if any(spent[:-1])), ordered[0])


_SMALL: Final = 0.01
"""Shares below this are left out."""
_GPU_FIELDS: Final = (
    *("utilization", "sm_active", "sm_occupancy", "tensor_active", "dram_active"),
    *("memory_used", "memory_total", "power", "power_limit", "temperature"),
)


def rank_object(process: SeenProcess, now: float) -> dict[str, Any]:
    """A process at the monotonic time `now` (s)."""
    phases, steps = process.phases.current(), process.steps.current()
    known = known_sources(phases)
    source = best_source(known, has_steps=bool(steps)) or next(iter(known), "")
    fields: dict[str, Any] = {
        "job": process.job or None,
        "rank": process.rank,
        "host": process.attributes.get("host.name"),
        "pid": process.attributes.get("process.pid"),
        "gpu": process.gpu or None,
        "program": process.attributes.get(semconv.PROGRAM),
        "executable": process.attributes.get("process.executable.name"),
        **_current_phase(process, source),
        "source": source or None,
        "shares": _of_source(process.shares, source),
        "times": _of_source(phases, source),
        "moments": _moments(process),
        "device": _device(process),
        "steps": _step_count(process),
        "step_rate": _rounded(process.step_rate),
        "jitter": _rounded(process.jitter),
        "lateness": _rounded(process.lateness_s),
        "step": _step(process, now),
        "verdict": _verdict(process, source),
        "workers": _workers(process),
        "collectives": {
            operation: summary
            for operation, durations in sorted(process.latencies.collectives.items())
            if (summary := _summary(durations, now))
        },
        "launch": _summary(process.latencies.launches, now),
        "ended": _end(process),
        "seen": process.seen_ns // 1_000_000,
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def gpu_object(gpu: SeenGpu) -> dict[str, Any]:
    """A GPU."""
    values = gpu.values
    fields: dict[str, Any] = {"host": gpu.host or None, "index": gpu.index, "name": gpu.name or None}
    fields |= {name: round(values[name], 6) for name in _GPU_FIELDS if name in values}
    if "memory_total" not in values and {"memory_used", "memory_free"} <= values.keys():
        fields["memory_total"] = sum(values.get(f"memory_{part}", 0.0) for part in ("used", "free", "reserved"))
    if (limit := values.get("power_limit_enforced")) is not None:
        fields["power_limit"] = limit
    fields["throttled"] = sorted(gpu.throttled) or None
    fields["xid"] = gpu.xids() or None
    fields["seen"] = gpu.seen_ns // 1_000_000
    return {name: value for name, value in fields.items() if value is not None}


def lone_job_object(process: SeenProcess) -> dict[str, Any]:
    """The job of a process that trains alone."""
    fields = {"name": title_of(process.attributes)[:LONGEST_TEXT], "ranks": [process.id]}
    return {**fields, **_finding(process.hang, process.answer)}


def job_object(job: SeenJob) -> dict[str, Any]:
    """A job of several ranks."""
    fields: dict[str, Any] = {
        "name": job.name or None,
        "ranks": job.ordered_ranks(),
        "verdict": _job_verdict(job),
        **_finding(job.hang, job.answer),
        "step_time": _rounded(job.step_s),
        "critical_path": {
            str(rank): {phase: round(spent, 6) for phase, spent in sorted(spent_in.items())}
            for rank, spent_in in sorted(job.critical.items())
        },
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def _finding(hang: SeenHang | None, answer: JobAnswer | None) -> dict[str, Any]:
    """The hang of a job, else its first cause."""
    if hang:
        sentence = ". ".join(hang_sentences(*hang)) + "."
        return {
            "hung": {"since": round(hang.hang.since * 1000), "sentence": sentence, "advice": [*hang_advice(hang.hang)]}
        }
    return {"answer": _answer(answer)} if answer and not answer.says_nothing else {}


def _answer(answer: JobAnswer) -> dict[str, Any]:
    """The first cause of a job in words, with its advice, and whether ranks are missing; or why none can be named."""
    seen = ranks_seen(answer)
    sentence = " ".join(filter(None, (lead_of(answer), seen and f"{seen}.")))
    fields = {"verdict": verdict_of(answer), "sentence": sentence, "advice": []}
    cause = answer.first
    if cause is None:
        return fields
    named = {"cause": label_of(cause), "share": round(cause.share, 4), "advice": list(cause.advice)}
    code = {"code": list(cause.code), "lines": [_line(line) for line in cause.lines]} if cause.code else {}
    return {**fields, **named, **code}


def _line(line: CodeTime) -> dict[str, Any]:
    """A line of the program, the call of a library below it, and their seconds a step."""
    call = {"call": line.call} if line.call else {}
    return {"line": line.line, **call, "seconds": round(line.seconds, 6)}


def _moments(process: SeenProcess) -> dict[str, dict[str, float]]:
    """By position and activity: the share of the time of about the last minute."""
    spent = process.ledger.recent()
    total = sum(spent.values())
    shares: dict[str, dict[str, float]] = {}
    for (position, activity), seconds in sorted(spent.items()):
        if seconds >= _SMALL * total:
            shares.setdefault(position, {})[activity] = round(seconds / total, 3)
    return shares


def _device(process: SeenProcess) -> dict[str, Any]:
    """The shares of this time in which its GPU was busy, had nothing to do, or did one of both."""
    busy, undetermined = (sum(use.recent().values()) for use in (process.gpu_busy, process.gpu_undetermined))
    starved: defaultdict[str, float] = defaultdict(float)
    for (position, _), seconds in process.gpu_starved.recent().items():
        starved[position] += seconds
    total = busy + undetermined + sum(starved.values())
    if not total:
        return {}
    shares = {position: round(seconds / total, 3) for position, seconds in sorted(starved.items())}
    return {"busy": round(busy / total, 3), "starved": shares, "undetermined": round(undetermined / total, 3)}


def _current_phase(process: SeenProcess, source: str) -> dict[str, Any]:
    """The phase of the kernel; without it, the phase that grew most in the last report."""
    if process.end:
        return {}
    if process.now_in:
        return {"phase": process.now_in[0], "phase_since": process.now_in[1] // 1_000_000}
    grown = {phase: spent for (phase, of), spent in process.grown.items() if of == source and spent}
    return {"phase": max(grown, key=lambda phase: grown[phase])} if grown else {}


def _step_count(process: SeenProcess) -> int | None:
    if not (steps := process.steps.current()):
        return None
    kinds = TRAINED if process.has_step_kind(TRAINED) else PASSES
    return int(sum(count for (kind, _), count in steps.items() if kind in kinds))


def _step(process: SeenProcess, now: float) -> dict[str, float]:
    times = _summary(process.trained_lately, now) or _summary(process.passed_lately, now) or {}
    times.pop("count", None)
    last = process.rows.last_duration
    return times if last is None else {**times, "last": last}


def _verdict(process: SeenProcess, source: str) -> dict[str, Any] | None:
    if not process.verdict:
        return None
    evidence: dict[str, Any] = {}
    if phase := PHASE_OF.get(process.verdict):
        evidence[phase] = round(process.shares.get((phase, source), 0.0), 4)
    elif process.verdict == "unstable" and process.jitter is not None:
        evidence["jitter"] = round(process.jitter, 4)
    elif process.verdict == "marks_missing":
        evidence["missing"] = sorted(process.missing_marks)
    return {"name": process.verdict, "evidence": evidence}


def _workers(process: SeenProcess) -> dict[str, float]:
    times = {name: round(spent, 3) for name, spent in process.worker_times.current().items()}
    return times if process.worker_count is None else {"count": process.worker_count, **times}


def _end(process: SeenProcess) -> dict[str, Any] | None:
    if process.end is None:
        return None
    known = {"code": process.end.code, "signal": process.end.signal}
    return {
        "time": process.end.time_ns // 1_000_000,
        **{key: summary for key, summary in known.items() if summary is not None},
    }


def _job_verdict(job: SeenJob) -> dict[str, Any] | None:
    """With the ranks that it is about: a straggler is a rank that is late by more than half of the most."""
    if not job.verdict:
        return None
    most = max(job.lateness.values(), default=0.0)
    late = {rank for rank, lateness in job.lateness.items() if most and lateness > most / 2}
    about = sorted(id_ for id_, rank in job.ranks.items() if rank in late) if job.verdict == "straggler" else []
    evidence = {"lateness": round(most, 6), "transfer": round(job.transfer_s or 0.0, 6)}
    return {"name": job.verdict, "ranks": about, "evidence": evidence}


def _of_source(by_phase: Mapping[tuple[str, str], float], source: str) -> dict[str, float]:
    return {phase: round(by_phase[phase, source], 4) for phase in PHASES if (phase, source) in by_phase}


def _summary(durations: RecentDurations, now: float) -> dict[str, float] | None:
    count, quantiles = durations.quantiles(now)
    if not quantiles:
        return None
    return {"count": count, "p50": float(f"{quantiles[0]:.4g}"), "p99": float(f"{quantiles[1]:.4g}")}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
