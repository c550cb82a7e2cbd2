"""Training loops on a device that is simulated kernel by kernel: their segments as probes see them, and the truth.

One thread launches kernels of known durations into a queue of 1,024. The kernels of a phase differ, and so does the
time between two launches. The model that is tested knows neither.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from otel_zernel_libraries.training.device import DeviceUse, Launches, Replayed, Segment, Stream, replay
from otel_zernel_libraries.training.ledger import Activity, Position

QUEUE: Final = 1024
LAUNCH: Final = 5e-6
"""Seconds that a launch takes."""
SEEN: Final = 50e-6
"""Seconds: probes see that a launch is blocked if it takes longer."""
NEVER: Final = 10**9
NOISE: Final = 0.1
"""Times of a step differ from the mean by up to this share."""


@dataclass(frozen=True)
class Phase:
    """One phase of each step. Times in seconds."""

    position: Position
    host: float
    """The thread's own time, without its launches."""
    kernels: tuple[float, ...] = ()
    """The duration of each kernel on the device."""
    gaps: tuple[float, ...] = (1.0,)
    """The part of `host` before each launch, and after the last."""


@dataclass(frozen=True)
class Loop:
    """A training loop."""

    phases: tuple[Phase, ...]
    steps: int
    sync_every: int
    sync_after: Position
    noise: float = NOISE

    @property
    def kernels(self) -> int:
        """The kernels of a step."""
        return sum(len(phase.kernels) for phase in self.phases)

    def without(self, position: Position) -> "Loop":
        """The same loop without the thread's own time at a position."""
        phases = (replace(phase, host=0.0) if phase.position is position else phase for phase in self.phases)
        return replace(self, phases=tuple(phases))


@dataclass
class Run:
    """The observed segments of a loop, and the truth about its device."""

    segments: list[Segment]
    idle: npt.NDArray[np.float64]
    """Seconds of each segment in which the device had nothing to do."""

    @property
    def seconds(self) -> float:
        return (self.segments[-1].end - self.segments[0].begin) / 1e9

    @property
    def busy_share(self) -> float:
        return 1.0 - float(self.idle.sum()) / self.seconds

    def idle_at(self, position: Position) -> float:
        pairs = zip(self.idle, self.segments, strict=True)
        return float(sum(idle for idle, segment in pairs if segment.position is position))


def draw(rng: random.Random, steps: int = 200) -> Loop:
    """Data 0 to 30 ms, 60 to 1,260 kernels of 5 to 120 us a step, a sync every 1, 5, 10, 50 steps or never."""
    counts = rng.randint(20, 400), rng.randint(40, 800), rng.randint(2, 60)
    positions = Position.FORWARD, Position.BACKWARD, Position.OPTIMIZER
    worked = [_drawn_phase(rng, position, count) for position, count in zip(positions, counts, strict=True)]
    data = Phase(Position.LOAD, rng.choice([0, 0.001, 0.004, 0.01, 0.03]))
    after = Phase(Position.AFTER_STEP, rng.choice([0, 0, 0.002, 0.01]))
    every = rng.choice([1, 1, 1, 5, 10, 50, NEVER])
    return Loop((data, *worked, after), steps, every, rng.choice(positions))


def _drawn_phase(rng: random.Random, position: Position, count: int) -> Phase:
    mean = rng.uniform(5e-6, 120e-6)
    kernels = tuple(min(max(mean * rng.lognormvariate(-0.125, 0.5), 2e-6), 5 * mean) for _ in range(count))
    gaps = [rng.uniform(0.3, 1.7) for _ in range(count + 1)]
    return Phase(position, count * rng.uniform(4e-6, 30e-6), kernels, tuple(gap / sum(gaps) for gap in gaps))


def simulate(loop: Loop, rng: random.Random) -> Run:
    """Runs a loop. Its last step ends with a sync."""
    now = last = 0.0
    ends: deque[float] = deque()
    idles: list[tuple[float, float]] = []
    segments: list[Segment] = []
    for step in range(loop.steps):
        for phase in loop.phases:
            begin = now
            first = last_launch = blocked = 0.0
            host = phase.host * (1 + rng.uniform(-loop.noise, loop.noise))
            factor = 1 + rng.uniform(-loop.noise, loop.noise)
            for kernel, gap in zip(phase.kernels, phase.gaps, strict=False):
                now += gap * host
                last_launch = now
                first = first or now
                while ends and ends[0] <= now:
                    ends.popleft()
                if len(ends) >= QUEUE:
                    blocked += ends[0] - now if ends[0] - now > SEEN else 0.0
                    now = ends[0]
                now += LAUNCH
                if now > last:
                    idles.append((last, now))
                    last = now
                last += kernel * factor
                ends.append(last)
            now += phase.gaps[-1] * host
            is_last = step == loop.steps - 1 and phase is loop.phases[-1]
            syncs = is_last or (phase.position is loop.sync_after and (step + 1) % loop.sync_every == 0)
            asked, now = now, max(now, last) if syncs else now
            segments.append(_segment(phase, begin, now, (first, last_launch), blocked, now - asked, syncs=syncs))
    idles.append((last, max(now, last)))
    return Run(segments, _overlap(idles, segments))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _segment(
    phase: Phase, begin: float, end: float, launches: tuple[float, float], blocked: float, wait: float, *, syncs: bool
) -> Segment:
    own = end - begin - blocked - wait
    spent = {Activity.PYTHON: own, Activity.LAUNCH_BLOCKED: blocked, Activity.GPU_WAIT: wait}
    return Segment(
        begin=_ns(begin),
        end=_ns(end),
        position=phase.position,
        launches=(Launches(len(phase.kernels), _ns(launches[0]), _ns(launches[1])),) if phase.kernels else (),
        blocked=_ns(blocked),
        wait=_ns(wait),
        drains=frozenset(Stream) if syncs else frozenset(),
        activities={activity: _ns(time) for activity, time in spent.items() if time > 0},
    )


def _overlap(idles: Sequence[tuple[float, float]], segments: Sequence[Segment]) -> npt.NDArray[np.float64]:
    """The idle time within each segment."""
    starts, ends = np.array(idles).T
    times, idle = np.stack([starts, ends], axis=1).ravel(), np.repeat(np.cumsum(ends - starts), 2)
    idle[::2] -= ends - starts
    bounds = np.array([segment.begin for segment in segments] + [segments[-1].end]) / 1e9
    return np.diff(np.interp(bounds, times, idle))


def replayed(use: DeviceUse, *without: Position) -> float:
    """Seconds that the segments take without the thread's own time at some positions."""
    removed = [[segment.own * 1e-9 if segment.position in without else 0.0] for segment in use.segments]
    (ends,) = replay([Replayed(use.segments, use.works, np.array(removed))])
    return float(ends[-1, 0])


def drawn(count: int, seed: int, steps: int = 200) -> Iterator[tuple[Loop, Run]]:
    """Drawn loops and their runs."""
    for number in range(count):
        rng = random.Random(seed * 10_007 + number)
        loop = draw(rng, steps)
        yield loop, simulate(loop, rng)
