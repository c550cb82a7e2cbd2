"""Sums up the phases and steps of one process: since it was first seen, and over the window."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_zernel_libraries.training.ledger import Moment, StepEvent
from otel_zernel_libraries.training.names import PHASES, TRAINED
from otel_zernel_libraries.training.verdicts import FEWEST_STEPS
from otel_zernel_processors.phases.scopes.attribution import segments_after
from otel_zernel_processors.phases.scopes.timeline import ClosedStep
from otel_zernel_processors.phases.signals.thread_states import PhaseDetail, StatePeriod

_THREADS = 64
"""Threads whose latest phase is kept."""


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
        self.ledger_ns: Counter[Moment] = Counter()
        """Time by scopes, by position and activity, up to the end of the last interval."""
        self.lossy_ns: Counter[Moment] = Counter()
        """The part of it in steps in which events were lost."""
        self._events: Counter[StepEvent] = Counter()
        self._latest: Mapping[StepEvent, int] = {}
        self._repeats = 0
        """The events of the latest step, and how many steps in a row share them: these are not in the sums yet."""
        self.state_ns: Counter[PhaseDetail] = Counter()
        """Time by the states of threads."""
        self.steps: Counter[tuple[str, str]] = Counter()
        """By kind and boundary."""
        self.epochs = 0
        self.skipped_steps: Counter[str] = Counter()
        """By kind: the part of these that have no intervals of their own."""
        self.lossy_steps: Counter[str] = Counter()
        """By kind: the steps in which events were lost."""
        self.transitions: Counter[str] = Counter()
        """By source."""
        self.overlap_ns = 0
        """How long collectives were in flight while the training thread did something else."""
        self.phase = "unknown"
        """The latest phase."""
        self.source = "scopes"
        """The source of the latest phase."""
        self._phases: dict[int, str] = {}
        """The latest phase of each training thread."""
        self._spent: dict[Moment, int] = {}
        """The same in the current interval."""
        self._spent_partly: dict[Moment, int] = {}
        """The same of steps that signals have counted in part. The window has neither the steps nor this time."""
        self._interval = PhaseTotals()
        self._signals_until = 0
        """The end (ns) of the time by states of threads or by signals."""
        self._window_intervals = window_intervals
        self._intervals: deque[PhaseTotals] = deque(maxlen=FEWEST_STEPS * window_intervals)
        """The latest intervals, the oldest first."""

    def add_step(self, closed: ClosedStep) -> None:
        """Adds a step by scopes. Time that signals have already counted is not counted again, and its step is not
        in the window."""
        if self.source != "scopes":
            self._forget_signals()
        step, attribution = closed.step, closed.attribution
        self._add_segments(closed)
        self.overlap_ns += attribution.overlap_ns
        if step.kind == "skipped":
            self._add_skipped(closed)
            return
        self.steps[step.kind, step.boundary] += 1
        self.epochs += step.ends_epoch
        events = closed.events
        if events is not self._latest:
            self._add_latest()
            self._latest = events
        self._repeats += 1
        self.lossy_steps[step.kind] += step.lossy
        if not self._is_whole(closed):
            return
        self._interval.steps[step.kind] += 1
        if step.trains and step.kind != "unfinished":
            duration = step.end - step.start - attribution.inference_ns()
            self._interval.duration_ns += duration
            self._interval.duration_squares += duration**2

    def _add_skipped(self, closed: ClosedStep) -> None:
        repeated = closed.repeated
        self.steps.update(repeated.steps)
        self._events.update(repeated.events)
        self.epochs += repeated.epochs
        counts: Counter[str] = Counter()
        for (kind, _), count in repeated.steps.items():
            counts[kind] += count
        self.skipped_steps.update(counts)
        if not self._is_whole(closed):
            return
        self._interval.steps.update(counts)
        for kind, lasted, count in repeated.durations:
            if kind in TRAINED:
                self._interval.duration_ns += count * lasted
                self._interval.duration_squares += count * lasted**2

    @property
    def events(self) -> Mapping[StepEvent, int]:
        """What has happened how often in its steps."""
        self._add_latest()
        return self._events

    def _add_latest(self) -> None:
        repeats, self._repeats = self._repeats, 0
        for event, count in self._latest.items() if repeats else ():
            self._events[event] += count * repeats

    def add_period(self, start: int, end: int, phase: str) -> None:
        """Adds a period (ns) in one phase by signals. A change of the phase counts as a transition."""
        self._add_time({phase: end - start}, "signals")
        self._add_transitions(int(phase != self.phase), phase, "signals")
        self._signals_until = end

    def add_states(self, period: StatePeriod) -> None:
        """Adds a period in several states of a thread, without the time that is counted already. A change of the
        longest phase counts as a transition."""
        period = period.after(self._signals_until)
        by_phase = period.by_phase
        if not by_phase:
            return
        self._add_time(by_phase, "threads")
        self.state_ns.update(period.spent_ns)
        longest = next(iter(by_phase))
        self._add_transitions(int(longest != self.phase), longest, "threads")
        self._signals_until = period.end

    @property
    def detail_ns(self) -> Counter[tuple[str, str, str]]:
        """Time by phase, detail and source. Rules have no details."""
        details: Counter[tuple[str, str, str]] = Counter()
        for moment, spent in self.ledger_ns.items():
            details[moment.phase, moment.detail, "scopes"] += spent
        for meaning, spent in self.state_ns.items():
            details[*meaning, "threads"] += spent
        return details

    @property
    def lossy_detail_ns(self) -> Counter[PhaseDetail]:
        """Time in steps in which events were lost, by phase and detail."""
        details: Counter[PhaseDetail] = Counter()
        for moment, spent in self.lossy_ns.items():
            details[PhaseDetail(moment.phase, moment.detail)] += spent
        return details

    def close_interval(self) -> PhaseTotals:
        """Ends an interval; returns the sums over the window. While steps take so long that too few of them
        are in it, it begins earlier."""
        self._sum_up()
        self._intervals.append(self._interval)
        self._interval = PhaseTotals()
        latest = list(self._intervals)
        window = latest[-self._window_intervals :]
        trained = sum(interval.trained for interval in window)
        while 0 < trained < FEWEST_STEPS and len(window) < len(latest):
            window = latest[-len(window) - 1 :]
            trained += window[0].trained
        return sum_of(window)

    def _forget_signals(self) -> None:
        """Empties the window: a job's start, which signals have evaluated, is not in the shares of its steps."""
        self._intervals.clear()
        self._interval = PhaseTotals()

    def _is_whole(self, closed: ClosedStep) -> bool:
        """Whether signals have counted no part of the step. The window has only such steps."""
        return closed.step.start >= self._signals_until

    def _add_segments(self, closed: ClosedStep) -> None:
        spent = self._spent if self._is_whole(closed) else self._spent_partly
        thread = closed.step.thread
        changes, last = 0, self._phases.get(thread, self.phase)
        segments = segments_after(closed.attribution.segments, self._signals_until)
        for start, end, moment, times, _ in segments:
            if times:
                for divided, lasted in times:
                    spent[divided] = spent.get(divided, 0) + lasted
            else:
                spent[moment] = spent.get(moment, 0) + end - start
            phase = moment.phase
            if phase != last:
                changes += 1
                last = phase
        for segment in segments if closed.step.losses else ():
            for divided, lasted in segment.spent:
                self.lossy_ns[divided] += lasted
        self._add_transitions(changes, last, "scopes")
        if thread not in self._phases and len(self._phases) >= _THREADS:
            self._phases.clear()
        self._phases[thread] = last

    def _sum_up(self) -> None:
        """Adds the time by position and activity to the sums."""
        for moment, duration_ns in self._spent.items():
            self.ledger_ns[moment] += duration_ns
            self._add_time({moment.phase: duration_ns}, "scopes")
        for moment, duration_ns in self._spent_partly.items():
            self.ledger_ns[moment] += duration_ns
            self.phase_ns[moment.phase, "scopes"] += duration_ns
        self._spent.clear()
        self._spent_partly.clear()

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
    for of_interval in totals:
        whole.add(of_interval)
    return whole


class RankTimes(NamedTuple):
    """How late each rank of a job is, and how long the transfers between ranks take, in seconds per training step: all
    time of the ranks, and their waits in all of it, divided by the number of their training steps.

    No clocks are compared. The ranks of a job step together, so in one time all of them take about the same number of
    steps. A rank that arrives late at a collective waits least, while the others wait for it. Its lateness is the
    longest wait of any rank minus its own. The shortest wait of any rank is the transfer itself: if it is long, the
    link is slow.
    """

    lateness: Mapping[int, float]
    """By rank."""
    transfer: float
    step: float
    """The time from one training step to the next, with evaluations and other work between them."""


def compare(windows: Mapping[int, PhaseTotals]) -> RankTimes | None:
    """Compares the sums of each rank's window. At least two ranks must have trained."""
    trained = {rank: window for rank, window in sorted(windows.items()) if window.trained and window.phase_ns.total()}
    if len(trained) < 2:
        return None
    waits = {rank: process.phase_ns["nccl_collective"] / 1e9 / process.trained for rank, process in trained.items()}
    step = sum(process.phase_ns.total() / 1e9 / process.trained for process in trained.values()) / len(trained)
    longest = max(waits.values())
    return RankTimes({rank: longest - wait for rank, wait in waits.items()}, min(waits.values()), step)
