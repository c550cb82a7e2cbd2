"""Phases from the states of the thread that calls CUDA most, for processes without PyTorch's scopes."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from otel_zernel_processors.phases.intake.inputs import InputPoint


class PhaseDetail(NamedTuple):
    """The meaning of a state."""

    phase: str
    detail: str
    """`zernel.phase.detail`: the evidence for the phase."""


STATES = {
    "gpu_wait": PhaseDetail("gpu_compute", "gpu_wait"),
    "launch": PhaseDetail("gpu_compute", "launch"),
    "collective": PhaseDetail("nccl_collective", "collective_wait"),
    "copy": PhaseDetail("data_loading", "copy"),
    "io": PhaseDetail("data_loading", "io"),
    "lock": PhaseDetail("unknown", "lock"),
    "sleep": PhaseDetail("unknown", "sleep"),
    "on_cpu": PhaseDetail("unknown", "host"),
    "descheduled": PhaseDetail("unknown", "descheduled"),
}
"""The meaning of each `zernel.thread.state`. docs/development/spans.md defines the states."""
CALLS = frozenset({"gpu_wait", "launch", "collective", "copy"})
"""The states in calls. While calls are sampled, the other states include calls that were not seen."""
SAMPLED = PhaseDetail("unknown", "sampled")
_OTHER = PhaseDetail("unknown", "host")


class StatePeriod(NamedTuple):
    """A period in which a thread was in several states. Their order is unknown."""

    start: int
    """ns"""
    end: int
    spent_ns: Mapping[PhaseDetail, int]
    """The time by phase and detail. It adds up to the length of the period."""

    def after(self, time: int) -> "StatePeriod":
        """The part after this time (ns): the same share of every state."""
        if time <= self.start:
            return self
        share = max(self.end - time, 0) / (self.end - self.start)
        spent = {meaning: part for meaning, ns in self.spent_ns.items() if (part := round(ns * share))}
        return StatePeriod(time, max(time, self.end), spent)

    @property
    def by_phase(self) -> Counter[str]:
        """The time of each phase, the longest one first."""
        times: Counter[str] = Counter()
        for meaning, spent in self.spent_ns.items():
            times[meaning.phase] += spent
        return Counter(dict(times.most_common()))


class ThreadStates:
    """Reads the states of one process. Points with the same time are one reading, which a later point completes."""

    def __init__(self) -> None:
        self.is_known = False
        """Whether there was any point."""
        self._totals: dict[tuple[str, bool], float] = {}
        self._spent: Counter[PhaseDetail] = Counter()
        self._now = self._end = 0

    def read(self, point: InputPoint) -> StatePeriod | None:
        """Adds a point; returns the period that it completes, if any."""
        period = self._complete() if point.time > self._now else None
        self._now, self.is_known = max(point.time, self._now), True
        series = point.state, point.is_sample
        before = self._totals.get(series, 0.0 if point.delta else point.value)
        total = before + point.value if point.delta else point.value
        meaning = SAMPLED if point.is_sample and point.state not in CALLS else STATES.get(point.state, _OTHER)
        self._spent[meaning] += round(max(total - before, 0.0) * 1e9)
        self._totals[series] = total
        return period

    def _complete(self) -> StatePeriod | None:
        spent = {meaning: ns for meaning, ns in self._spent.items() if ns}
        self._spent.clear()
        if not spent:
            return None
        start = max(self._now - sum(spent.values()), self._end)
        self._end = self._now
        return StatePeriod(start, self._now, spent)
