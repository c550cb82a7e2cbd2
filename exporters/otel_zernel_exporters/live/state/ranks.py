"""The state of a training process, from the metrics of `phases` and `ebpf`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_exporters.live.state.timeline import StepRows
from otel_zernel_libraries.training import PHASES, PROGRAM, TRAINED, best_source
from otel_zernel_libraries.training.durations import RecentDurations

_PASSES = ("evaluation", "inference")
"""The kinds of steps without a backward pass that count for a process that does not train."""
_LIMITING = {
    "input_bound": "data_loading",
    "communication_bound": "nccl_collective",
    "optimizer_bound": "optimizer_step",
    "compute_bound": "gpu_compute",
}
"""By verdict: the phase whose share it is based on."""


@dataclass(slots=True)
class LiveRank:
    """The newest values of one training process."""

    id: str
    steps_shown: StepRows
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    """Those of its resource."""
    appeared: float = 0.0
    """When its first data arrived (monotonic, s)."""
    touched: float = 0.0
    ended_at: float | None = None
    seen_ns: int = 0
    job: str = ""
    gpu: str = ""
    now_in: tuple[str, int] | None = None
    """The phase that the kernel sees now, and its start (Unix time, ns)."""
    values: dict[str, float] = field(default_factory=dict)
    """By field of the state."""
    times: dict[tuple[str, str], float] = field(default_factory=dict)
    """By source and phase: the time (s) since the first data of the process."""
    shares: dict[tuple[str, str], float] = field(default_factory=dict)
    """By source and phase: the share of the window's time."""
    grown: dict[tuple[str, str], float] = field(default_factory=dict)
    """By source and phase: the increase (s) of the time in the last report."""
    reported_ns: int = 0
    """The time of the last report of phases."""
    steps: dict[tuple[str, str], int] = field(default_factory=dict)
    """By kind and boundary: the number of steps."""
    verdict: str = ""
    missing_marks: set[str] = field(default_factory=set)
    workers: dict[str, float] = field(default_factory=dict)
    trained: RecentDurations = field(default_factory=RecentDurations)
    passes: RecentDurations = field(default_factory=RecentDurations)
    """The steps of `_PASSES`."""
    launches: RecentDurations = field(default_factory=RecentDurations)
    collectives: dict[str, RecentDurations] = field(default_factory=dict)
    end: dict[str, Any] | None = None

    @property
    def host_and_pid(self) -> tuple[str, int]:
        """Names the process until its pid is used again."""
        pid = self.attributes.get("process.pid")
        return str(self.attributes.get("host.name", "")), pid if isinstance(pid, int) else -1

    @property
    def rank(self) -> int | None:
        """Its number in a job of several ranks."""
        rank = self.attributes.get("zernel.rank")
        return rank if isinstance(rank, int) else None

    @property
    def has_trained(self) -> bool:
        """Whether a step had a backward pass."""
        return any(kind in TRAINED for kind, _ in self.steps)

    @property
    def source(self) -> str:
        """The best source of its phases."""
        known = {source for (source, phase), spent in self.times.items() if phase != "unknown" and spent}
        return best_source(known, has_steps=bool(self.steps)) or next(iter(known), "")

    def is_ageing(self, now: float) -> bool:
        """Whether a distribution loses values now."""
        return any(one.is_ageing(now) for one in (self.trained, self.passes, self.launches, *self.collectives.values()))

    def rendered(self, now: float) -> dict[str, Any]:
        """The fields of the live state (docs/live.md) at the monotonic time `now` (s)."""
        source = self.source
        fields: dict[str, Any] = {
            "job": self.job or None,
            "rank": self.rank,
            "host": self.attributes.get("host.name"),
            "pid": self.attributes.get("process.pid"),
            "gpu": self.gpu or None,
            "program": self.attributes.get(PROGRAM),
            "executable": self.attributes.get("process.executable.name"),
            **self._current_phase(source),
            "source": source or None,
            "shares": _of_source(self.shares, source),
            "times": _of_source(self.times, source),
            "steps": self._step_count(),
            **{name: round(value, 6) for name, value in self.values.items()},
            "step": self._step(now),
            "verdict": self._verdict(source),
            "workers": self.workers or None,
            "collectives": {op: one for op, of in sorted(self.collectives.items()) if (one := _summary(of, now))},
            "launch": _summary(self.launches, now),
            "ended": self.end,
            "seen": self.seen_ns // 1_000_000,
        }
        return {name: value for name, value in fields.items() if value not in (None, {})}

    def _current_phase(self, source: str) -> dict[str, Any]:
        """The phase of the kernel; without it, the phase that grew most in the last report."""
        if self.end:
            return {}
        if self.now_in:
            return {"phase": self.now_in[0], "phase_since": self.now_in[1] // 1_000_000}
        grown = {phase: spent for (of, phase), spent in self.grown.items() if of == source and spent}
        return {"phase": max(grown, key=lambda phase: grown[phase])} if grown else {}

    def _step_count(self) -> int | None:
        if not self.steps:
            return None
        kinds = TRAINED if self.has_trained else _PASSES
        return sum(count for (kind, _), count in self.steps.items() if kind in kinds)

    def _step(self, now: float) -> dict[str, float]:
        found = _summary(self.trained, now) or _summary(self.passes, now) or {}
        found.pop("count", None)
        last = self.steps_shown.last_duration
        return found if last is None else {**found, "last": last}

    def _verdict(self, source: str) -> dict[str, Any] | None:
        if not self.verdict:
            return None
        evidence: dict[str, Any] = {}
        if phase := _LIMITING.get(self.verdict):
            evidence[phase] = round(self.shares.get((source, phase), 0.0), 4)
        elif self.verdict == "unstable" and "jitter" in self.values:
            evidence["jitter"] = round(self.values["jitter"], 4)
        elif self.verdict == "marks_missing":
            evidence["missing"] = sorted(self.missing_marks)
        return {"name": self.verdict, "evidence": evidence}


def rank_id_of(resource: Mapping[str, AttributeValue]) -> str:
    """`HOST/PID/START`; empty if the resource is no process."""
    pid, start = resource.get("process.pid"), resource.get("process.creation.time", "")
    return f"{resource.get('host.name', '')}/{pid}/{start}" if isinstance(pid, int) else ""


def _of_source(by_source: Mapping[tuple[str, str], float], source: str) -> dict[str, float]:
    return {phase: round(by_source[source, phase], 4) for phase in PHASES if (source, phase) in by_source}


def _summary(durations: RecentDurations, now: float) -> dict[str, float] | None:
    count, found = durations.quantiles(now)
    if not found:
        return None
    return {"count": count, "p50": float(f"{found[0]:.4g}"), "p99": float(f"{found[1]:.4g}")}
