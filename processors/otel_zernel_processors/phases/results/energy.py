"""Energy and idle time of a GPU, shared out over the phases of the processes on it."""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from otel_zernel_processors.phases.intake.inputs import Observation
from otel_zernel_processors.phases.scopes.attribution import PHASE_OF, Piece, after

_LONGEST = 60_000_000_000
"""Samples further apart (ns) say nothing about the time between them."""
_PIECES = 100_000
_SAMPLES = 10_000


class History:
    """The latest phases of one process, until they are joined with the GPU's samples."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int, str]] = []
        self.until = 0
        """Up to when (ns) the phases are known."""

    def add(self, pieces: Sequence[Piece]) -> None:
        """Appends the pieces of the next step."""
        self._pieces += after(pieces, self.until)
        self._grown()

    def add_time(self, start: int, end: int, phase: str) -> None:
        """Appends a stretch of one phase."""
        if end > self.until:
            self._pieces.append((max(start, self.until), end, phase))
            self._grown()

    def shares(self, start: int, end: int) -> dict[str, float]:
        """Each phase's share of [start, end); time that is not known is `unknown`. The shares add up to 1."""
        spent: Counter[str] = Counter()
        for position in range(self._first_after(start), len(self._pieces)):
            since, until, what = self._pieces[position]
            if since >= end:
                break
            spent[PHASE_OF.get(what, what)] += max(min(until, end) - max(since, start), 0)
        spent["unknown"] += end - start - spent.total()
        return {phase: lasted / (end - start) for phase, lasted in spent.items()}

    def forget(self, before: int) -> None:
        """Drops what ended before (ns)."""
        del self._pieces[: self._first_after(before)]

    def _first_after(self, time: int) -> int:
        """The position of the first piece that ends after the time (ns)."""
        return bisect_right(self._pieces, time, key=itemgetter(1))

    def _grown(self) -> None:
        if self._pieces:
            self.until = self._pieces[-1][1]
        if len(self._pieces) > _PIECES:
            del self._pieces[: len(self._pieces) - _PIECES + _PIECES // 10]


@dataclass(slots=True)
class Spent:
    """What a process used of its GPU in each phase."""

    joules: dict[str, float] = field(default_factory=dict)
    idle_s: dict[str, float] = field(default_factory=dict)


class Sample(NamedTuple):
    """What a GPU used in [start, end) (ns): energy in J or idle time in s."""

    start: int
    end: int
    kind: str
    amount: float


class Gpu:
    """The samples of one GPU. Energy is its counter's where it has one, else power over time (trapezoids)."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self.utilization: float | None = None
        """The last one known, 0 to 1."""

    def read(self, seen: Observation) -> None:
        """Takes a point of the GPU."""
        if seen.name == "hw.gpu.utilization":
            self.utilization = seen.value
        if seen.name == "hw.power" and "hw.energy" in self._last:
            return
        before, self._last[seen.name] = self._last.get(seen.name), (seen.time, seen.value)
        if before is None or not 0 < seen.time - before[0] <= _LONGEST:
            return
        amount = self._amount(seen, before[1], (seen.time - before[0]) / 1e9)
        if amount >= 0:  # else the counter was reset
            kind = "idle" if seen.name == "hw.gpu.utilization" else "energy"
            self._samples.append(Sample(before[0], seen.time, kind, amount))

    def share_out(self, users: Sequence[tuple[History, Spent]], at_latest: int) -> Iterator[None]:
        """Gives the users (each alike) what was used while their phases are known, or before `at_latest` (ns); in
        pieces, one for each sample."""
        until = min((history.until for history, _ in users), default=0)
        while self._samples and (self._samples[0].end <= until or self._samples[0].end <= at_latest):
            sample = self._samples.popleft()
            for history, spent in users:
                into = spent.joules if sample.kind == "energy" else spent.idle_s
                for phase, share in history.shares(sample.start, sample.end).items():
                    into[phase] = into.get(phase, 0.0) + sample.amount * share / len(users)
            yield
        needed = min([*(one.start for one in self._samples), *(time for time, _ in self._last.values())], default=0)
        for history, _ in users:
            history.forget(needed)

    @staticmethod
    def _amount(seen: Observation, before: float, seconds: float) -> float:
        if seen.name == "hw.energy":
            return seen.value if seen.delta else seen.value - before
        if seen.name == "hw.power":
            return (seen.value + before) / 2 * seconds
        return max(1.0 - seen.value, 0.0) * seconds
