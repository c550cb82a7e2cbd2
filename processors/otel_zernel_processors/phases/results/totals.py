"""What a process's phases add up to: since the start, and over the window."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from otel_zernel_processors.phases.scopes.attribution import PHASE_OF, PHASES, after
from otel_zernel_processors.phases.scopes.timeline import ClosedStep


@dataclass(slots=True)
class Tally:
    """Sums over one interval, or over the window."""

    phase_ns: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    """By kind."""
    duration_ns: int = 0
    """Of training steps and accumulations."""
    duration_squares: int = 0

    def add(self, other: "Tally") -> None:
        self.phase_ns.update(other.phase_ns)
        self.steps.update(other.steps)
        self.duration_ns += other.duration_ns
        self.duration_squares += other.duration_squares

    @property
    def trained(self) -> int:
        """How many steps had a backward pass."""
        return self.steps["training"] + self.steps["accumulation"]

    def fraction(self, phase: str) -> float:
        """The phase's share of all time, 0 to 1; 0 if there is none."""
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


class Account:
    """The sums of one process. Times are whole ns, so that they add up exactly."""

    def __init__(self, window_intervals: int) -> None:
        self.phase_ns: Counter[tuple[str, str]] = Counter()
        """By phase and source."""
        self.steps: Counter[str] = Counter()
        self.epochs = 0
        self.lossy_steps = 0
        self.transitions: Counter[str] = Counter()
        """By source."""
        self.overlap_ns = 0
        self.phase = "unknown"
        """The last one known."""
        self.source = "scopes"
        self.open = Tally()
        self._told_until = 0
        self._window: deque[Tally] = deque(maxlen=window_intervals)

    def add_step(self, closed: ClosedStep) -> None:
        """Adds a step by scopes; its time counts once, whatever has told of it before."""
        step = closed.step
        spent: dict[str, int] = {}
        changes, last = 0, self.phase
        for start, end, what in after(closed.ledger.pieces, self._told_until):
            phase = PHASE_OF[what]
            spent[phase] = spent.get(phase, 0) + end - start
            changes += phase != last
            last = phase
        self._add(spent, "scopes")
        self._change(changes, last, "scopes")
        self._told_until = max(self._told_until, step.end)
        self.overlap_ns += closed.ledger.overlap_ns
        self.steps[step.kind] += 1
        self.epochs += step.ends_epoch
        self.lossy_steps += step.lossy
        self.open.steps[step.kind] += 1
        if step.trains and step.kind != "unfinished":
            duration = step.end - step.start
            self.open.duration_ns += duration
            self.open.duration_squares += duration**2

    def add_time(self, start: int, end: int, phase: str) -> None:
        """Adds a stretch of one phase (ns) by signals; one that differs from the last is a transition."""
        self._add({phase: end - start}, "signals")
        self._change(int(phase != self.phase), phase, "signals")
        self._told_until = end

    def _add(self, spent: Mapping[str, int], source: str) -> None:
        of_window = self.open.phase_ns
        for phase, duration_ns in spent.items():
            self.phase_ns[phase, source] += duration_ns
            of_window[phase] += duration_ns

    def _change(self, count: int, phase: str, source: str) -> None:
        """Counts transitions, the last of them to this phase."""
        self.transitions[source] += count
        self.phase, self.source = phase, source

    def close(self) -> Tally:
        """Ends an interval: the sums over the window."""
        self._window.append(self.open)
        self.open = Tally()
        return total(self._window)


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    whole = Tally(phase_ns=Counter(dict.fromkeys(PHASES, 0)))
    for tally in tallies:
        whole.add(tally)
    return whole
