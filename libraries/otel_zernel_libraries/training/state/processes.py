"""A training process, from the metrics and spans of `phases` and `ebpf`."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, TypeVar

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.code_times import CodeTimes
from otel_zernel_libraries.training.durations import Counts, RecentDurations
from otel_zernel_libraries.training.hangs import SeenHang
from otel_zernel_libraries.training.names import PHASES, TRAINED, best_source
from otel_zernel_libraries.training.points import SeenValue
from otel_zernel_libraries.training.state.latencies import Latencies
from otel_zernel_libraries.training.state.readers import TooManySeries, chosen, gauge
from otel_zernel_libraries.training.state.step_bars import StepBars
from otel_zernel_libraries.training.state.step_rows import StepRows
from otel_zernel_libraries.training.state.step_times import StepTimes

STEPS: Final = semconv.STEP_DURATION
PASSES: Final = ("evaluation", "inference")
"""The kinds of steps without a backward pass that count for a process that does not train."""
_NS: Final = 1e9
_SOURCES: Final = ("scopes", "threads", "signals")
_DETAIL: Final = (semconv.PHASE, semconv.PHASE_DETAIL, semconv.PHASE_SOURCE)
_EVENT: Final = (semconv.STEP_EVENT, semconv.POSITION, semconv.NCCL_OPERATION, semconv.COLLECTIVE_SIZE)
_KNOWN_AFTER: Final = 3.0
"""Seconds: the first report on probes is about the time before the process appeared, too."""
_MOST_MARKS: Final = 16
_SUMS_EVERY_NS: Final = 10_000_000_000
_KEPT_SUMS: Final = 6
_MOST_SERIES: Final = 256
"""Series of one sum of a process: `phases` has at most 5 phases x 3 sources x 16 details."""
Attributes = Mapping[str, AttributeValue]
Key = TypeVar("Key")


class SeriesSums(dict[Key, float], Generic[Key]):
    """The sum of each series of a metric, by the attributes that tell the series apart.

    A series that has ended keeps its value, as evidence of the watched time, and is not current any more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ended: set[Key] = set()

    def take(self, key: Key, value: float | None, *, is_delta: bool = False) -> None:
        """Takes a point; None ends the series. Raises `TooManySeries`."""
        if value is None:
            self._ended.update(self.keys() & {key})
            return
        if key not in self and len(self) >= _MOST_SERIES:
            raise TooManySeries
        self[key] = self.get(key, 0.0) + value if is_delta else value
        self._ended.discard(key)

    def current(self) -> dict[Key, float]:
        """The series that have not ended."""
        return {key: value for key, value in self.items() if key not in self._ended} if self._ended else self


class RecentSums(SeriesSums[Key]):
    """Sums whose growth in about the last minute is known."""

    def __init__(self) -> None:
        super().__init__()
        self._since = self._report = 0
        self._before: deque[dict[Key, float]] = deque(maxlen=_KEPT_SUMS)

    def begin(self, time_ns: int, start_ns: int) -> None:
        """Called before each point, with the time of its report and the begin of its sum. The first sums that were seen
        of an old one are from before."""
        if time_ns == self._report:
            return
        is_known = bool(self) or time_ns - start_ns < _KEPT_SUMS * _SUMS_EVERY_NS
        if is_known and not 0 <= time_ns - self._since < _SUMS_EVERY_NS:
            self._since = time_ns
            self._before.append(dict(self))
        self._report = time_ns

    def recent(self) -> dict[Key, float]:
        """The growth of each series that has grown."""
        before = self._before[0] if self._before else {}
        grown = ((key, value - before.get(key, 0.0)) for key, value in self.current().items())
        return {key: growth for key, growth in grown if growth > 0}


class WorkerTimes(SeriesSums[str]):
    """The CPU time (`cpu_time`) and the time in I/O (`io_wait`) of the workers of a DataLoader.

    `ebpf` sends increases. A cumulative sum counts from its first point on, also over resets.
    """

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[str, float] = {}
        """The newest value of each cumulative series."""
        self._before: dict[str, float] = {}
        """The value of its first point: it was spent before the process was watched."""

    def take(self, key: str, value: float | None, *, is_delta: bool = False) -> None:
        """Takes a point; None ends the series. Raises `TooManySeries`."""
        if value is not None and not is_delta:
            newest = self._newest.get(key)
            self._newest[key] = value
            if newest is None:
                self._before[key] = value
            else:
                value -= newest if value >= newest else 0.0
        super().take(key, value, is_delta=True)

    def watched(self, key: str) -> float:
        """The time (s) since the first point."""
        return self.get(key, 0.0) - self._before.get(key, 0.0)


@dataclass(slots=True)
class ProcessIncrease:
    """The data that one process has reported since a reader took it."""

    time_ns: int = 0
    """Of the newest report (Unix time)."""
    steps: Counts = field(default_factory=Counts)
    """The durations of its steps."""
    grown: dict[str, list[float]] = field(default_factory=dict)
    """By source: the increase (s) of the time in each of `PHASES`."""


class ProcessEnd(NamedTuple):
    """The end of a process."""

    time_ns: int
    """Unix time."""
    code: AttributeValue | None
    """Its exit code, if it is known."""
    signal: AttributeValue | None
    """The name of the signal that ended it."""


@dataclass(slots=True)
class SeenProcess:
    """The newest values of one training process, and its sums."""

    attributes: dict[str, AttributeValue]
    """Those of its resource."""
    id: str = ""
    """`HOST/PID/START`."""
    command: tuple[str, ...] = ()
    """Its command line; empty if nobody has read it."""
    ancestors: tuple[int, ...] = ()
    """The pids of its parent, grandparent and so on, if somebody has read them."""
    appeared: float = 0.0
    """When its first data arrived (monotonic, s)."""
    touched: float = 0.0
    ended_at: float | None = None
    end: ProcessEnd | None = None
    first_ns: int = 0
    """The time of the data with which it appeared (Unix time)."""
    seen_ns: int = 0
    """The time of its newest data (Unix time)."""
    job: str = ""
    """The id of its job; empty while it waits for the data of its job."""
    lateness_s: float | None = None
    """The longest wait of any rank of its job for collectives minus its own, in a mean step."""
    gpu: str = ""
    """The id of the GPU that was last seen with its memory."""

    now_in: tuple[str, int] | None = None
    """The phase that the kernel sees now, and its start (Unix time, ns)."""
    phases: SeriesSums[tuple[str, str]] = field(default_factory=SeriesSums)
    """By phase and source (`scopes`, `threads`, `signals`): the time (s) since it was first seen."""
    grown: dict[tuple[str, str], float] = field(default_factory=dict)
    """By phase and source: the increase (s) of the time in the last report."""
    reported_ns: int = 0
    """The time of the last report of phases."""
    shares: dict[tuple[str, str], float] = field(default_factory=dict)
    """By phase and source: the share of the time in the window of `phases`."""
    details: SeriesSums[tuple[str, str, str]] = field(default_factory=SeriesSums)
    """By phase, detail and source: the time (s) since it was first seen."""
    lossy_details: SeriesSums[tuple[str, str, str]] = field(default_factory=SeriesSums)
    """Like `details`: the part of it in steps in which events were lost."""
    ledger: RecentSums[tuple[str, str]] = field(default_factory=RecentSums)
    """By position and activity: the time (s) since it was first seen."""
    gpu_starved: RecentSums[tuple[str, str]] = field(default_factory=RecentSums)
    """By position and activity: the time (s) in which its GPU certainly had nothing to do."""
    gpu_busy: RecentSums[str] = field(default_factory=RecentSums)
    """By source: the time (s) in which its GPU certainly worked."""
    gpu_undetermined: RecentSums[str] = field(default_factory=RecentSums)
    """By source: the time (s) in which its GPU did one or the other."""
    events: SeriesSums[tuple[str, str, str, str]] = field(default_factory=SeriesSums)
    """By the fields of `StepEvent`: how often it has happened in its steps."""
    steps: SeriesSums[tuple[str, str]] = field(default_factory=SeriesSums)
    """By kind and boundary: the number of steps."""
    lossy_steps: SeriesSums[str] = field(default_factory=SeriesSums)
    """By kind: the number of steps in which events were lost."""
    skipped_steps: SeriesSums[str] = field(default_factory=SeriesSums)
    """By kind: the number of steps that were not read one by one."""
    step_rate: float | None = None
    """Steps a second in the window of `phases`."""
    jitter: float | None = None
    """The standard deviation of the durations of steps by their mean, in the window of `phases`."""
    answer: JobAnswer | None = None
    """Its newest causes, if it trains alone."""
    hang: SeenHang | None = None
    """None while it does not hang, or if it is a rank of a job."""
    code: CodeTimes = field(default_factory=CodeTimes)
    """Its stacks by position, if `phases` emits them."""
    verdict: str = ""
    missing_marks: set[str] = field(default_factory=set)
    """The values of `zernel.mark` in docs/development/spans.md."""
    has_sampled_operators: bool = False
    """Whether probes took more than `max_overhead`, so that some operators were not seen."""

    trained_lately: RecentDurations = field(default_factory=RecentDurations)
    """The durations of its steps with a backward pass."""
    passed_lately: RecentDurations = field(default_factory=RecentDurations)
    """The durations of its passes without gradients, as long as it does not train."""
    increase: ProcessIncrease | None = None
    """None if it has reported nothing since a reader took it."""
    latencies: Latencies = field(default_factory=Latencies)
    rows: StepRows = field(default_factory=StepRows)
    """Its newest steps, if the state keeps them."""
    bars: StepBars = field(default_factory=StepBars)
    """All its steps, if the state keeps them."""
    times: defaultdict[str, StepTimes] = field(default_factory=lambda: defaultdict(StepTimes))
    """By kind: the durations of all its steps without lost events, if the state keeps them."""
    lossy_times: defaultdict[str, StepTimes] = field(default_factory=lambda: defaultdict(StepTimes))
    """The same of the steps in which events were lost."""

    probe_times: SeriesSums[str] = field(default_factory=SeriesSums)
    """By pid: the time (s) that probes took of it, as the receiver estimates it."""
    worker_count: float | None = None
    """The workers of its DataLoader."""
    worker_times: WorkerTimes = field(default_factory=WorkerTimes)
    workers: int = 0
    """The most workers at one time."""

    @property
    def pid(self) -> int:
        """-1 if it is not known."""
        pid = self.attributes.get("process.pid")
        return pid if isinstance(pid, int) else -1

    @property
    def host(self) -> str:
        return str(self.attributes.get("host.name", ""))

    @property
    def parent_pid(self) -> int:
        """0 if it is not known."""
        parent = self.attributes.get("process.parent_pid", 0)
        return parent if isinstance(parent, int) else 0

    @property
    def rank(self) -> int | None:
        """Its rank in a job of several ranks, else None."""
        rank, size = self.attributes.get(semconv.RANK), self.attributes.get(semconv.WORLD_SIZE)
        return rank if isinstance(rank, int) and isinstance(size, int) and size > 1 else None

    @property
    def probe_share(self) -> float | None:
        """The time that probes took on all its threads, as a share of the time of its data; None if that is short."""
        passed = (self.seen_ns - self.first_ns) / 1e9 if self.seen_ns else 0.0
        return sum(self.probe_times.values()) / passed if passed >= _KNOWN_AFTER and self.probe_times else None

    @property
    def trained(self) -> int:
        """The number of steps with a backward pass."""
        return int(sum(count for (kind, _), count in self.steps.items() if kind in TRAINED))

    @property
    def trained_skipped(self) -> int:
        """The training steps and accumulations that were not read one by one."""
        return int(sum(count for kind, count in self.skipped_steps.items() if kind in TRAINED))

    @property
    def trained_lossy(self) -> int:
        """The number of these steps in which events were lost."""
        return int(sum(count for kind, count in self.lossy_steps.items() if kind in TRAINED))

    @property
    def trained_times(self) -> StepTimes:
        """The durations of all steps with a backward pass."""
        several = (times[kind] for times in (self.times, self.lossy_times) for kind in TRAINED if kind in times)
        return StepTimes.joined(several)

    @property
    def source(self) -> str:
        """The best source of its phases: `scopes` with steps, else `threads` or `signals`; empty if none is known."""
        return best_source(known_sources(self.phases), has_steps=bool(self.steps))

    def has_step_kind(self, kinds: tuple[str, ...]) -> bool:
        """Whether a step was of one of these kinds."""
        return any(kind in kinds for kind, _ in self.steps.current())

    def recent(self, metric: str, attributes: Attributes) -> RecentDurations | None:
        """The distribution that a metric describes, if it is kept."""
        if metric != STEPS:
            return self.latencies.of(metric, attributes)
        kind = attributes.get(semconv.STEP_KIND)
        if kind in TRAINED:
            return self.trained_lately
        return self.passed_lately if kind in PASSES and not self.has_step_kind(TRAINED) else None

    def increase_at(self, time_ns: int) -> ProcessIncrease:
        """The increase to which a report of this time belongs."""
        self.increase = self.increase or ProcessIncrease()
        self.increase.time_ns = max(self.increase.time_ns, time_ns)
        return self.increase

    def is_ageing(self, now: float) -> bool:
        """Whether a distribution loses values now."""
        several = (self.trained_lately, self.passed_lately, *self.latencies.all())
        return any(durations.is_ageing(now) for durations in several)

    def without_lossy_steps(self) -> "SeenProcess":
        """The same process, without the steps in which events were lost."""
        steps, left = SeriesSums[tuple[str, str]](), dict(self.lossy_steps)
        for (kind, boundary), count in self.steps.items():
            steps[kind, boundary] = count - min(left.get(kind, 0), count)
            left[kind] = max(left.get(kind, 0) - count, 0)
        bars = StepBars()
        bars.bars = [bar for bar in self.bars.bars if not bar.is_lossy]
        details = SeriesSums[tuple[str, str, str]]()
        details.update({at: max(spent - self.lossy_details.get(at, 0.0), 0.0) for at, spent in self.details.items()})
        return replace(
            self,
            steps=steps,
            details=details,
            bars=bars,
            lossy_steps=SeriesSums(),
            lossy_details=SeriesSums(),
            lossy_times=defaultdict(StepTimes),
        )


def process_id_of(resource: Attributes) -> str:
    """`HOST/PID/START`; empty if the resource is no process."""
    pid, start = resource.get("process.pid"), resource.get("process.creation.time", "")
    return f"{resource.get('host.name', '')}/{pid}/{start}" if isinstance(pid, int) else ""


def known_sources(phases: Mapping[tuple[str, str], float]) -> set[str]:
    """The sources in which a known phase has time."""
    return {source for (phase, source), spent in phases.items() if phase != "unknown" and spent}


def _sum(field: str, *names: str) -> Callable[[SeenProcess, SeenValue], None]:
    """Reads a cumulative sum whose series differ in these attributes."""

    def read(process: SeenProcess, seen: SeenValue) -> None:
        texts = tuple(map(seen.text, names))
        sums: SeriesSums[object] = getattr(process, field)
        if isinstance(sums, RecentSums):
            sums.begin(seen.time_ns, seen.start_ns)
        sums.take(texts if len(texts) > 1 else texts[0], seen.value, is_delta=seen.is_delta)

    return read


def _worker_count(process: SeenProcess, seen: SeenValue) -> None:
    process.worker_count = seen.value
    process.workers = max(process.workers, int(seen.value or 0))


def _worker_time(name: str) -> Callable[[SeenProcess, SeenValue], None]:
    def read(process: SeenProcess, seen: SeenValue) -> None:
        process.worker_times.take(name, seen.value, is_delta=seen.is_delta)

    return read


def _phase_time(process: SeenProcess, seen: SeenValue) -> None:
    at = phase, source = seen.text(semconv.PHASE), seen.text(semconv.PHASE_SOURCE)
    if source not in _SOURCES or phase not in PHASES:
        return
    if seen.value is None:
        process.grown.pop(at, None)
    else:
        if seen.time_ns != process.reported_ns:
            process.reported_ns, process.grown = seen.time_ns, {}
        before = 0.0 if seen.is_delta else process.phases.current().get(at, 0.0)
        process.grown[at] = grown = max(0.0, seen.value - before)
        if grown:
            by_phase = process.increase_at(seen.time_ns).grown.setdefault(source, [0.0] * len(PHASES))
            by_phase[PHASES.index(phase)] += grown
    process.phases.take(at, seen.value, is_delta=seen.is_delta)


def _phase_share(process: SeenProcess, seen: SeenValue) -> None:
    at = phase, source = seen.text(semconv.PHASE), seen.text(semconv.PHASE_SOURCE)
    if seen.value is None:
        process.shares.pop(at, None)
    elif source in _SOURCES and phase in PHASES:
        process.shares[at] = seen.value


def _elapsed(process: SeenProcess, seen: SeenValue) -> None:
    phase = seen.text(semconv.PHASE)
    if seen.value is not None and phase in PHASES:
        process.now_in = phase, seen.time_ns - round(seen.value * _NS)
    elif process.now_in and process.now_in[0] == phase:
        process.now_in = None


def _missing_mark(process: SeenProcess, seen: SeenValue) -> None:
    mark = seen.text(semconv.MARK)
    if seen.attributes.get(semconv.SAMPLED):
        process.has_sampled_operators |= seen.value is not None
    elif not seen.value:
        process.missing_marks.discard(mark)
    elif len(process.missing_marks) < _MOST_MARKS:
        process.missing_marks.add(mark)


DETAIL_READERS: Final[Mapping[str, Callable[[SeenProcess, SeenValue], None]]] = {
    semconv.PHASE_DETAIL_TIME: _sum("details", *_DETAIL),
    semconv.PHASE_LOSSY_TIME: _sum("lossy_details", *_DETAIL),
    semconv.STEPS_LOSSY: _sum("lossy_steps", semconv.STEP_KIND),
    semconv.STEPS_SKIPPED: _sum("skipped_steps", semconv.STEP_KIND),
    semconv.LEDGER_TIME: _sum("ledger", semconv.POSITION, semconv.ACTIVITY),
    semconv.STEP_EVENTS: _sum("events", *_EVENT),
    semconv.GPU_STARVED_TIME: _sum("gpu_starved", semconv.POSITION, semconv.ACTIVITY),
    semconv.GPU_BUSY_TIME: _sum("gpu_busy", semconv.PHASE_SOURCE),
    semconv.GPU_UNDETERMINED_TIME: _sum("gpu_undetermined", semconv.PHASE_SOURCE),
}
"""Of `PHASES_READERS` those for the parts of phases, for steps in which events were lost, and for the GPU."""
MOMENT_READERS: Final = (
    *(semconv.LEDGER_TIME, semconv.GPU_STARVED_TIME),
    *(semconv.GPU_BUSY_TIME, semconv.GPU_UNDETERMINED_TIME),
)
"""Of these, those for the time by position and activity, and for the GPU's."""
PHASES_READERS: Final[Mapping[str, Callable[[SeenProcess, SeenValue], None]]] = {
    semconv.PHASE_TIME: _phase_time,
    semconv.PHASE_FRACTION: _phase_share,
    **DETAIL_READERS,
    semconv.STEPS: _sum("steps", semconv.STEP_KIND, semconv.STEP_BOUNDARY),
    semconv.STEP_RATE: gauge("step_rate"),
    semconv.STEP_JITTER: gauge("jitter"),
    semconv.VERDICT: chosen("verdict", semconv.VERDICT),
}
"""By metric of `phases`: how its points change a process. They make a process that is new."""
EBPF_READERS: Final[Mapping[str, Callable[[SeenProcess, SeenValue], None]]] = {
    semconv.PHASE_ELAPSED: _elapsed,
    semconv.EBPF_MISSING_MARKS: _missing_mark,
    semconv.DATALOADER_WORKERS: _worker_count,
    semconv.DATALOADER_WORKER_CPU_TIME: _worker_time("cpu_time"),
    semconv.DATALOADER_WORKER_IO_WAIT: _worker_time("io_wait"),
    semconv.PROBE_TIME: _sum("probe_times", "process.pid"),
}
"""The same of `ebpf`, which emits them for every process that it watches: they make no training process."""
