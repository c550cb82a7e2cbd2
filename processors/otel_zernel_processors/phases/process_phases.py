"""The phases of one process: by its scopes, by the states of its threads, or by rules about its signals."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.intake.inputs import PROCESS_TIMES, THREAD_TIME, InputPoint
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
        self.timeline = Timeline(ns(config.bridge), config.max_spans, drop)
        self.signals = SignalReader(config.signals)
        self._thread_states = ThreadStates()
        self.history = EnergyHistory()
        """The phases that wait for samples of its GPU."""
        self.gpu_usage: defaultdict[str, GpuUsage] = defaultdict(GpuUsage)
        """Its share of its GPU's energy, by the source of the phases."""
        self.device = DeviceTimes()
        """What its GPU did."""

    @property
    def is_ml(self) -> bool:
        """Whether the process uses PyTorch, CUDA or NCCL."""
        return self.timeline.has_scopes or self.signals.is_ml

    def user_of(self, gpu: str) -> GpuUser:
        """The process as a user of this GPU. Its share goes to the current source of phases."""
        return GpuUser(gpu, self.history, self.gpu_usage[self.totals.source], self.device)

    def add_point(self, point: InputPoint, gpu: float) -> PhasePeriod | None:
        """Adds a point; returns the period that rules evaluated, if any. `gpu`: the utilization of its GPU, 0 to 1."""
        period = self.signals.read(point, gpu)
        if point.name == THREAD_TIME:
            self._add_state(point)
        if point.name in PROCESS_TIMES:
            self.timeline.add_time(point)
        if period is None or self._source != "signals":
            return None
        self.totals.add_period(*period)
        self.history.add_period(*period)
        return period

    def advance(self, until: int) -> list[ClosedStep]:
        """Closes the steps that are complete by `until` (ns), and later ones if too many intervals wait."""
        return self._added(self.timeline.advance(max(until, self.timeline.early_until())))

    def end(self) -> list[ClosedStep]:
        """Closes all steps, because the process has ended."""
        steps = self.advance(self.timeline.last_end) + self._added(self.timeline.end())
        self.device.is_over = True
        return steps

    @property
    def _source(self) -> str:
        """The source of the phases."""
        if self._wanted != "auto":
            return self._wanted
        if self.timeline.has_passes:
            return "scopes"
        return "threads" if self._thread_states.is_known else "signals"

    def _add_state(self, point: InputPoint) -> None:
        period = self._thread_states.read(point)
        if period and self._source == "threads":
            self.totals.add_states(period)
            self.history.add_phases(period.start, period.by_phase)

    def _added(self, steps: Iterable[ClosedStep]) -> list[ClosedStep]:
        added = []
        for closed in steps:
            self.totals.add_step(closed)
            self.history.add(closed.attribution.segments)
            if closed.step.kind != "skipped":
                self.device.add_step(closed)
            added.append(closed)
        return added
