"""The processes, GPUs and jobs of a training as the objects of the live state: docs/live.md has the fields."""

from collections.abc import Mapping
from typing import Any, Final

from otel_zernel_libraries.training import PHASE_OF, PHASES, TRAINED, best_source, semconv, title_of
from otel_zernel_libraries.training.durations import RecentDurations
from otel_zernel_libraries.training.points import LONGEST_TEXT
from otel_zernel_libraries.training.state import PASSES, SeenGpu, SeenJob, SeenProcess, known_sources

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
    return {"name": title_of(process.attributes)[:LONGEST_TEXT], "ranks": [process.id]}


def job_object(job: SeenJob) -> dict[str, Any]:
    """A job of several ranks."""
    fields: dict[str, Any] = {
        "name": job.name or None,
        "ranks": job.ordered_ranks(),
        "verdict": _job_verdict(job),
        "step_time": _rounded(job.step_s),
        "critical_path": {
            str(rank): {phase: round(spent, 6) for phase, spent in sorted(spent_in.items())}
            for rank, spent_in in sorted(job.critical.items())
        },
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


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
    found = _summary(process.trained_lately, now) or _summary(process.passed_lately, now) or {}
    found.pop("count", None)
    last = process.rows.last_duration
    return found if last is None else {**found, "last": last}


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
    return {"time": process.end.time_ns // 1_000_000, **{key: one for key, one in known.items() if one is not None}}


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
    count, found = durations.quantiles(now)
    if not found:
        return None
    return {"count": count, "p50": float(f"{found[0]:.4g}"), "p99": float(f"{found[1]:.4g}")}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
