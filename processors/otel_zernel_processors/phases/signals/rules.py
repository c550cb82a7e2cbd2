"""Phases from signals: seven rules for processes without PyTorch's scopes.

The first rule that matches decides. Every comparison is strict.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.config import SignalsConfig, ns
from otel_zernel_processors.phases.intake.inputs import InputPoint
from otel_zernel_processors.phases.signals.levels import Level

_GAUGES = frozenset({semconv.GPU_PROCESS_UTILIZATION, semconv.PROCESS_CPU_BURST})
"""Metrics whose last value counts, while it is valid. For all others the increase counts."""
_COLLECTIVES = (semconv.NCCL_COLLECTIVE_ENQUEUE_DURATION, semconv.NCCL_COLLECTIVE_DURATION)
"""Either is enough: the second is missing while calls are sampled, and a receiver may measure only one."""


class PhasePeriod(NamedTuple):
    """A period in one phase: [start, end) in ns."""

    start: int
    end: int
    phase: str


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of one process for one evaluation."""

    is_ml: bool = False
    """Whether the process has ever used CUDA or NCCL."""
    nccl_active: bool = False
    futex_waits: int = 0
    """Number since the last evaluation."""
    io_wait: float = 0.0
    """Share of the time in I/O wait, 0 to 1."""
    gpu: float = 0.0
    """Utilization of the process's GPU, 0 to 1."""
    cpu_burst_ns: int = 0
    """The last uninterrupted run on a CPU; 0 for none."""
    gpu_synced: bool = False
    """Whether the process has ever waited for the GPU."""


def uses_gpu(name: str) -> bool:
    """Whether a process that has this metric uses CUDA or NCCL."""
    return name.startswith(("zernel.cuda.", "zernel.nccl.", "zernel.gpu."))


def phase_by_rules(signals: Signals, limits: SignalsConfig) -> str:
    """The phase by the seven rules."""
    if not signals.is_ml:
        return "unknown"
    if limits.collectives and signals.nccl_active and signals.futex_waits > 0:
        return "nccl_collective"
    if signals.io_wait > limits.data_loading_io_wait and signals.gpu < limits.data_loading_gpu:
        return "data_loading"
    if signals.gpu > limits.compute_gpu and signals.cpu_burst_ns == 0:
        return "gpu_compute"
    if 0 < signals.cpu_burst_ns < ns(limits.optimizer_burst) and signals.gpu_synced:
        return "optimizer_step"
    if signals.io_wait > limits.mixed_io_wait and limits.data_loading_gpu < signals.gpu < limits.compute_gpu:
        return "data_loading"
    return "unknown"


class Debounce:
    """A state that ignores short changes: a new one replaces it only after several equal values in a row."""

    def __init__(self, stability: int, state: str) -> None:
        """`stability`: how many equal values; 0 or 1: the first one is enough."""
        self.state = state
        self._stability = stability
        self._candidate = state
        self._count = 0

    def update(self, value: str) -> bool:
        """Adds a value; returns whether the state changed."""
        self._count = self._count + 1 if value == self._candidate else 1
        self._candidate = value
        if value == self.state or self._count < self._stability:
            return False
        self.state = value
        return True


class SignalReader:
    """Reads the signals of one process from its metrics and evaluates the rules.

    Points with the same time are one reading. A reading is evaluated when a later point arrives, and at most once per
    `signals.interval` of the points' time.
    """

    def __init__(self, config: SignalsConfig) -> None:
        self._config = config
        self._phase = Debounce(config.stability, "unknown")
        self._levels: defaultdict[str, Level] = defaultdict(Level)
        """The gauges."""
        self._totals: dict[str, float] = {}
        """The running totals of all others."""
        self._increases: defaultdict[str, float] = defaultdict(float)
        """Since the last evaluation."""
        self._names: set[str] = set()
        self._now = self._evaluated = 0

    @property
    def phase(self) -> str:
        """The current phase of the process."""
        return self._phase.state

    @property
    def is_ml(self) -> bool:
        """Whether the process has ever used CUDA or NCCL."""
        return any(map(uses_gpu, self._names))

    def read(self, point: InputPoint, gpu: float) -> PhasePeriod | None:
        """Adds a point of the process; returns the period that it completes, if any.

        `gpu` is the utilization of the process's GPU, 0 to 1. It counts if the process's own utilization is unknown.
        """
        period = None
        if point.time > self._now:
            if not self._evaluated:
                self._evaluated = point.time
            elif self._now - self._evaluated >= ns(self._config.interval):
                period = self._evaluate(gpu)
            self._now = point.time
        self._names.add(point.name)
        if point.name in _GAUGES:
            self._levels[point.name].set(point.time, point.value)
        else:
            self._add_increase(point)
        return period

    def end_level(self, point: InputPoint) -> None:
        """Ends the series of a gauge: its level is unknown from then on."""
        self._levels[point.name].set(point.time, point.value)

    def _add_increase(self, point: InputPoint) -> None:
        before = self._totals.get(point.name, 0.0 if point.delta else point.value)
        total = before + point.value if point.delta else point.value
        self._increases[point.name] += max(total - before, 0.0)
        self._totals[point.name] = total

    def _evaluate(self, gpu: float) -> PhasePeriod:
        """Gives the time since the last evaluation to the phase so far, then evaluates the rules for the time after."""
        period = PhasePeriod(self._evaluated, self._now, self._phase.state)
        signals = self._signals((self._now - self._evaluated) / 1e9, gpu)
        self._phase.update(phase_by_rules(signals, self._config))
        self._increases.clear()
        self._evaluated = self._now
        return period

    def _signals(self, elapsed_s: float, gpu: float) -> Signals:
        return Signals(
            is_ml=self.is_ml,
            nccl_active=any(self._increases[name] > 0 for name in _COLLECTIVES),
            futex_waits=int(self._increases[semconv.DISTRIBUTED_SYNC_WAIT]),
            io_wait=min(self._increases[semconv.PROCESS_IO_WAIT] / elapsed_s, 1.0),
            gpu=gpu if (own := self._level(semconv.GPU_PROCESS_UTILIZATION)) is None else own,
            cpu_burst_ns=ns(self._level(semconv.PROCESS_CPU_BURST) or 0.0),
            gpu_synced=self._totals.get(semconv.CUDA_SYNC_WAIT, 0.0) > 0,
        )

    def _level(self, name: str) -> float | None:
        return self._levels[name].at(self._now)
