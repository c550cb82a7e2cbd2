"""The phases of one process: by its scopes, by the states of its threads, or by rules about its signals."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from otel_zernel_libraries.training.interval_spans import DeviceSpan
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.intake.inputs import PROCESS_TIMES, THREAD_TIME, InputPoint
from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.intake.losses import LossPeriod
from otel_zernel_processors.phases.results.device import DeviceTimes
from otel_zernel_processors.phases.results.energy import EnergyHistory, GpuUsage, GpuUser
from otel_zernel_processors.phases.results.totals import Totals
from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from otel_zernel_processors.phases.signals.rules import PhasePeriod, SignalReader
from otel_zernel_processors.phases.signals.thread_states import ThreadStates


class ProcessPhases:
    """Adds up the time in each phase, by the best source that the process has data for."""

    def __init__(self, config: PhasesConfig, drop: Callable[[int, str], None]) -> None:
        """`drop` counts collectives that are discarded before their step is closed."""
        self.totals = Totals(round(config.window / config.interval))
        self._wanted = config.source
        self._timeline = Timeline(ns(config.bridge), config.max_spans, drop)
        self._signals = SignalReader(config.signals)
        self._thread_states = ThreadStates()
        self._history = EnergyHistory()
        self._gpu_usage: defaultdict[str, GpuUsage] = defaultdict(GpuUsage)
        self.device = DeviceTimes()
        """What its GPU did."""

    @property
    def is_ml(self) -> bool:
        """Whether the process uses PyTorch, CUDA or NCCL."""
        return self._timeline.has_scopes or self._signals.is_ml

    @property
    def until(self) -> int:
        """The time (ns) by which spans have ended that are late if they arrive now."""
        return self._timeline.until

    @property
    def doubtful_ns(self) -> int:
        """Time of steps that were closed before the loss of events in them was known."""
        return self._timeline.doubtful_ns

    @property
    def gpu_usage(self) -> Mapping[str, GpuUsage]:
        """Its share of its GPU's energy, by the source of the phases."""
        return self._gpu_usage

    def user_of(self, gpu: str) -> GpuUser:
        """The process as a user of this GPU. Its share goes to the current source of phases."""
        return GpuUser(gpu, self._history, self._gpu_usage[self.totals.source], self.device)

    def add_interval(self, interval: ThreadInterval) -> str | None:
        """Adds an interval; returns None, or the reason why it is dropped."""
        return self._timeline.add(interval)

    def add_device(self, span: DeviceSpan) -> None:
        """Adds what its GPU has recorded of its own work."""
        self.device.add_records(span)

    def add_loss(self, period: LossPeriod) -> None:
        """Records a loss of events."""
        self._timeline.add_loss(period.start, period.end)

    def add_point(self, point: InputPoint, gpu: float) -> PhasePeriod | None:
        """Adds a point; returns the period that rules evaluated, if any. `gpu`: the utilization of its GPU, 0 to 1."""
        period = self._signals.read(point, gpu)
        if point.name == THREAD_TIME:
            self._add_state(point)
        if point.name in PROCESS_TIMES:
            self._timeline.add_time(point)
        if period is None or self._source != "signals":
            return None
        self.totals.add_period(*period)
        self._history.add_period(*period)
        return period

    def end_level(self, point: InputPoint) -> None:
        """Ends a series of one of its gauges."""
        self._signals.end_level(point)

    def advance(self, until: int) -> list[ClosedStep]:
        """Closes the steps that are complete by `until` (ns), and later ones if too many intervals wait."""
        return self._added(self._timeline.advance(max(until, self._timeline.early_until())))

    def end(self) -> list[ClosedStep]:
        """Closes all steps, because the process has ended."""
        steps = self.advance(self._timeline.last_end) + self._added(self._timeline.end())
        self.device.is_over = True
        return steps

    def forget(self, before: int) -> None:
        """Removes the phases before this time (ns) that wait for samples of the GPU."""
        self._history.forget(before)

    @property
    def _source(self) -> str:
        """The source of the phases."""
        if self._wanted != "auto":
            return self._wanted
        if self._timeline.has_passes:
            return "scopes"
        return "threads" if self._thread_states.is_known else "signals"

    def _add_state(self, point: InputPoint) -> None:
        period = self._thread_states.read(point)
        if period and self._source == "threads":
            self.totals.add_states(period)
            self._history.add_phases(period.start, period.by_phase)

    def _added(self, steps: Iterable[ClosedStep]) -> list[ClosedStep]:
        added = []
        for closed in steps:
            self.totals.add_step(closed)
            self._history.add(closed.attribution.segments)
            if closed.step.kind != "skipped":
                self.device.add_step(closed)
            added.append(closed)
        return added
