"""Sums up the phases and steps of one process: since it was first seen, and over the window."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from otel_zernel_processors.phases.scopes.attribution import PHASE_OF, PHASES, segments_after
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


@dataclass(slots=True)
class PhaseTotals:
    """Sums over one interval or over the window."""

    phase_ns: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    """By kind."""
    duration_ns: int = 0
    """Of training steps and accumulations."""
    duration_squares: int = 0
    """Sum of the squares of these durations, in ns²."""

    def add(self, other: "PhaseTotals") -> None:
        """Adds the sums of another interval."""
        self.phase_ns.update(other.phase_ns)
        self.steps.update(other.steps)
        self.duration_ns += other.duration_ns
        self.duration_squares += other.duration_squares

    @property
    def trained(self) -> int:
        """Number of steps with a backward pass."""
        return self.steps["training"] + self.steps["accumulation"]

    def fraction(self, phase: str) -> float:
        """The phase's share of all time, 0 to 1; 0 without any time."""
        total = self.phase_ns.total()
        return self.phase_ns[phase] / total if total else 0.0

    @property
    def jitter(self) -> float:
        """The coefficient of variation of the training steps' durations."""
        if self.trained < 2 or not self.duration_ns:
            return 0.0
        mean = self.duration_ns / self.trained
        variance = self.duration_squares / self.trained - mean**2
        return float(max(variance, 0.0) ** 0.5 / mean)


class Totals:
    """The sums of one process. Times are whole ns, so that they add up exactly."""

    def __init__(self, window_intervals: int) -> None:
        self.phase_ns: Counter[tuple[str, str]] = Counter()
        """By phase and source."""
        self.steps: Counter[str] = Counter()
        """By kind."""
        self.epochs = 0
        self.lossy_steps = 0
        self.transitions: Counter[str] = Counter()
        """By source."""
        self.overlap_ns = 0
        """How long collectives were in flight while the training thread did something else."""
        self.phase = "unknown"
        """The latest phase."""
        self.source = "scopes"
        """The source of the latest phase."""
        self._interval = PhaseTotals()
        self._counted_until = 0
        self._window: deque[PhaseTotals] = deque(maxlen=window_intervals)

    def add_step(self, closed: ClosedStep) -> None:
        """Adds a step by scopes. Time that signals have already counted is not counted again."""
        if self.source == "signals":
            self._forget_signals()
        step, attribution = closed.step, closed.attribution
        self._add_segments(closed)
        self._counted_until = max(self._counted_until, step.end)
        self.overlap_ns += attribution.overlap_ns
        self.steps[step.kind] += 1
        self.epochs += step.ends_epoch
        self.lossy_steps += step.lossy
        self._interval.steps[step.kind] += 1
        if step.trains and step.kind != "unfinished":
            duration = step.end - step.start
            self._interval.duration_ns += duration
            self._interval.duration_squares += duration**2

    def add_period(self, start: int, end: int, phase: str) -> None:
        """Adds a period (ns) in one phase by signals. A change of the phase counts as a transition."""
        self._add_time({phase: end - start}, "signals")
        self._add_transitions(int(phase != self.phase), phase, "signals")
        self._counted_until = end

    def close_interval(self) -> PhaseTotals:
        """Ends an interval; returns the sums over the window."""
        self._window.append(self._interval)
        self._interval = PhaseTotals()
        return sum_of(self._window)

    def _forget_signals(self) -> None:
        """Empties the window: a job's start, which signals have evaluated, must not decide the verdict on its steps."""
        self._window.clear()
        self._interval = PhaseTotals()

    def _add_segments(self, closed: ClosedStep) -> None:
        spent: dict[str, int] = {}
        changes, last = 0, self.phase
        for start, end, activity in segments_after(closed.attribution.segments, self._counted_until):
            phase = PHASE_OF[activity]
            spent[phase] = spent.get(phase, 0) + end - start
            changes += phase != last
            last = phase
        self._add_time(spent, "scopes")
        self._add_transitions(changes, last, "scopes")

    def _add_time(self, spent: Mapping[str, int], source: str) -> None:
        of_interval = self._interval.phase_ns
        for phase, duration_ns in spent.items():
            self.phase_ns[phase, source] += duration_ns
            of_interval[phase] += duration_ns

    def _add_transitions(self, count: int, phase: str, source: str) -> None:
        """Counts transitions. The last one leads to `phase`."""
        self.transitions[source] += count
        self.phase, self.source = phase, source


def sum_of(totals: Iterable[PhaseTotals]) -> PhaseTotals:
    """The sum over several intervals, with an entry for every phase."""
    whole = PhaseTotals(phase_ns=Counter(dict.fromkeys(PHASES, 0)))
    for one in totals:
        whole.add(one)
    return whole
