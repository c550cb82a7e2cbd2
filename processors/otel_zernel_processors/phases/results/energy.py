"""Divides the energy of GPUs among the phases of the processes that use them."""

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import GpuFacts
from otel_zernel_libraries.training.ledger import Segment
from otel_zernel_processors.phases.intake.inputs import CLOCKS, InputPoint
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.scopes.attribution import segments_after
from otel_zernel_processors.phases.signals.levels import Level

_LONGEST = 60_000_000_000
"""If two samples are further apart (ns), the time between them is skipped."""
_SEGMENTS = 100_000
_SAMPLES = 10_000
_GPUS = 1024
"""GPUs of one host; points of further GPUs are ignored."""

_REASONS = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
"""Reasons that somebody can remove. A GPU that computes all the time meets its power limit."""
_READINGS = 64
"""Readings that are kept."""


class EnergyHistory:
    """The latest phases of one process, kept until the GPU's samples arrive."""

    def __init__(self) -> None:
        self._segments: list[tuple[int, int, str]] = []
        self.until = 0
        """The phases are known up to this time (ns)."""

    def add(self, segments: Sequence[Segment]) -> None:
        """Appends the segments of the next step."""
        self._segments += [
            (start, end, moment.phase) for start, end, moment, _, _ in segments_after(segments, self.until)
        ]
        self._update()

    def add_period(self, start: int, end: int, phase: str) -> None:
        """Appends a period in one phase."""
        if end > self.until:
            self._segments.append((max(start, self.until), end, phase))
            self._update()

    def add_phases(self, start: int, spent_ns: Mapping[str, int]) -> None:
        """Appends a period with several phases. Their order is unknown: each gets a part of its own."""
        for phase, spent in spent_ns.items():
            self.add_period(start, start + spent, phase)
            start += spent

    def shares(self, start: int, end: int) -> dict[str, float]:
        """Each phase's share of [start, end). Time without a known phase is `unknown`. The shares add up to 1."""
        spent: Counter[str] = Counter()
        for position in range(self._first_after(start), len(self._segments)):
            since, until, phase = self._segments[position]
            if since >= end:
                break
            spent[phase] += max(min(until, end) - max(since, start), 0)
        spent["unknown"] += end - start - spent.total()
        return {phase: lasted / (end - start) for phase, lasted in spent.items()}

    def forget(self, before: int) -> None:
        """Removes all segments that ended before this time (ns)."""
        del self._segments[: self._first_after(before)]

    def _first_after(self, time: int) -> int:
        """The position of the first segment that ends after the time (ns)."""
        return bisect_right(self._segments, time, key=itemgetter(1))

    def _update(self) -> None:
        if self._segments:
            self.until = self._segments[-1][1]
        if len(self._segments) > _SEGMENTS:
            del self._segments[: len(self._segments) - _SEGMENTS + _SEGMENTS // 10]


GpuUsage = dict[str, float]
"""A process's share of its GPU's energy (J), by phase."""


class GpuSample(NamedTuple):
    """What a GPU used in [start, end) (ns): energy in J or idle time in s."""

    start: int
    end: int
    kind: str
    """`energy` or `idle`."""
    amount: float


class GpuClocks:
    """How far the clocks of one GPU are below the highest ones, and why: its latest readings."""

    def __init__(self) -> None:
        self._limit = 0.0
        self._parts: deque[float] = deque(maxlen=_READINGS)
        self._active: dict[str, deque[float]] = {}

    def read(self, point: InputPoint) -> None:
        """Adds a point of the clock of its cores, of its limit, or of a reason that lowers it."""
        if point.name == semconv.GPU_CLOCK_LIMIT:
            self._limit = point.value
        elif point.name == semconv.GPU_CLOCK and self._limit > 0:
            self._parts.append(min(max(point.value / self._limit, 0.0), 1.0))
        elif point.name == semconv.GPU_THROTTLE_ACTIVE and point.state in _REASONS:
            self._active.setdefault(point.state, deque(maxlen=_READINGS)).append(float(point.value > 0))

    @property
    def mean(self) -> float:
        """The clock by the highest one, 0 to 1. 1 if it is not known."""
        return sum(self._parts) / len(self._parts) if self._parts else 1.0

    @property
    def lowered(self) -> dict[str, float]:
        """By reason: the part of the readings in which it lowered the clocks, if any."""
        means = {reason: sum(active) / len(active) for reason, active in self._active.items()}
        return {reason: mean for reason, mean in means.items() if mean}


class GpuEnergy:
    """The samples of one GPU.

    Energy comes from the GPU's counter. Without a counter it is the integral of the power, by the trapezoidal rule.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}
        self._samples: deque[GpuSample] = deque(maxlen=_SAMPLES)
        self.utilization = Level()
        """0 to 1."""
        self.clocks = GpuClocks()

    def read(self, point: InputPoint) -> None:
        """Adds a point of the GPU."""
        if point.name in CLOCKS:
            self.clocks.read(point)
            return
        if point.name == "hw.gpu.utilization":
            self.utilization.set(point.time, point.value)
        if math.isnan(point.value):
            self._last.pop(point.name, None)
            return
        if point.name == "hw.power" and "hw.energy" in self._last:
            return
        before, self._last[point.name] = self._last.get(point.name), (point.time, point.value)
        if before is None or not 0 < point.time - before[0] <= _LONGEST:
            return
        amount = self._amount(point, before[1], (point.time - before[0]) / 1e9)
        if amount >= 0:  # a negative amount shows that the counter was reset
            kind = "idle" if point.name == "hw.gpu.utilization" else "energy"
            self._samples.append(GpuSample(before[0], point.time, kind, amount))

    def share_out(self, users: Sequence["GpuUser"], at_latest: int) -> None:
        """Divides the energy equally among the users. If there is only one, the idle time is a fact about its device.

        A sample waits until all users' phases are known for its time, but not if it ended before `at_latest` (ns).
        """
        until = min((user.history.until for user in users), default=0)
        while self._samples and (self._samples[0].end <= until or self._samples[0].end <= at_latest):
            sample = self._samples.popleft()
            if sample.kind == "energy":
                for user in users:
                    _add(user.usage, sample, user.history.shares(sample.start, sample.end), len(users))
            elif len(users) == 1:
                users[0].device.add_reading(sample.start, sample.end, sample.amount)
        needed = min(
            [*(sample.start for sample in self._samples), *(time for time, _ in self._last.values())], default=0
        )
        for user in users:
            user.history.forget(needed)

    @staticmethod
    def _amount(point: InputPoint, before: float, seconds: float) -> float:
        if point.name == "hw.energy":
            return point.value if point.delta else point.value - before
        if point.name == "hw.power":
            return (point.value + before) / 2 * seconds
        return max(1.0 - point.value, 0.0) * seconds


def _add(usage: GpuUsage, sample: GpuSample, shares: dict[str, float], users: int) -> None:
    for phase, share in shares.items():
        usage[phase] = usage.get(phase, 0.0) + sample.amount * share / users


class GpuUser(NamedTuple):
    """A process that uses a GPU."""

    gpu: str
    """The index of the GPU; empty if unknown."""
    history: EnergyHistory
    usage: GpuUsage
    """The process's share is added to this."""
    device: DeviceTimes


class HostGpus:
    """The GPUs of one host by their index."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuEnergy] = {}

    def read(self, point: InputPoint) -> None:
        """Adds a point of a GPU. A point without an index is ignored."""
        if point.gpu in self._gpus or (point.gpu and len(self._gpus) < _GPUS):
            self._gpus.setdefault(point.gpu, GpuEnergy()).read(point)

    def utilization(self, index: str, now: int) -> float:
        """The utilization of a GPU at `now` (ns), 0 to 1; 0 if unknown."""
        gpu = self._gpus.get(self._known(index))
        return (gpu.utilization.at(now) if gpu else None) or 0.0

    def facts(self, index: str, others: Mapping[int, float]) -> GpuFacts | None:
        """What slows down a GPU; None without readings of it. `others`: the use of it by other programs, by pid."""
        gpu = self._gpus.get(self._known(index))
        return GpuFacts(clock=gpu.clocks.mean, lowered=gpu.clocks.lowered, others=others) if gpu else None

    def share_out(self, users: Iterable[GpuUser], at_latest: int) -> None:
        """Divides what each GPU used among its users; see `GpuEnergy.share_out`."""
        of_gpu: dict[str, list[GpuUser]] = {}
        for user in users:
            of_gpu.setdefault(self._known(user.gpu), []).append(user)
        for index, gpu in self._gpus.items():
            gpu.share_out(of_gpu.get(index, []), at_latest)

    def _known(self, index: str) -> str:
        """The index itself. For an unknown (empty) one: the index of the host's only GPU, if it has one."""
        return next(iter(self._gpus)) if len(self._gpus) == 1 and not index else index
