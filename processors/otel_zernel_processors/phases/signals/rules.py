"""Phases by signals: the seven rules for processes that have no PyTorch scopes.

The rules are those of a scheduler's task states. The first that matches decides, and every comparison is strict.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from otel_zernel_processors.phases.config import SignalsConfig, ns
from otel_zernel_processors.phases.intake.inputs import Observation
from otel_zernel_processors.phases.signals.debounce import Vote

_LEVELS = frozenset({"zernel.gpu.process.utilization", "zernel.process.cpu.burst"})
"""Read as they are; of all others it counts what they gained."""


class Spell(NamedTuple):
    """A stretch of time in one phase: [start, end) in ns."""

    start: int
    end: int
    phase: str


@dataclass(frozen=True, slots=True)
class Signals:
    """What the kernel and the GPU say of a process, for one evaluation."""

    is_ml: bool = False
    """Whether it uses CUDA or NCCL at all."""
    nccl_active: bool = False
    futex_waits: int = 0
    """Since the last evaluation."""
    io_wait: float = 0.0
    """Share of the time, 0 to 1."""
    gpu: float = 0.0
    """Use of the process's own GPU, 0 to 1."""
    cpu_burst_ns: int = 0
    """The last stretch of uninterrupted CPU time; 0 for none."""
    gpu_synced: bool = False
    """Whether a GPU sync was ever seen."""


def phase_by_rules(seen: Signals, limits: SignalsConfig) -> str:
    """The phase by the seven rules."""
    if not seen.is_ml:
        return "unknown"
    if limits.collectives and seen.nccl_active and seen.futex_waits > 0:
        return "nccl_collective"
    if seen.io_wait > limits.data_loading_io_wait and seen.gpu < limits.data_loading_gpu:
        return "data_loading"
    if seen.gpu > limits.compute_gpu and seen.cpu_burst_ns == 0:
        return "gpu_compute"
    if 0 < seen.cpu_burst_ns < ns(limits.optimizer_burst) and seen.gpu_synced:
        return "optimizer_step"
    if seen.io_wait > limits.mixed_io_wait and limits.data_loading_gpu < seen.gpu < limits.compute_gpu:
        return "data_loading"
    return "unknown"


class SignalReader:
    """Reads the signals of one process off its metrics, and evaluates the rules at an interval of their time.

    The points of one time are evaluated together, when a later one comes.
    """

    def __init__(self, config: SignalsConfig) -> None:
        self._config = config
        self._vote = Vote(config.stability, "unknown")
        self._totals: dict[str, float] = {}
        self._gained: defaultdict[str, float] = defaultdict(float)
        self._ever: set[str] = set()
        self._now = self._last = 0

    @property
    def phase(self) -> str:
        """The phase the process is in."""
        return self._vote.state

    @property
    def is_ml(self) -> bool:
        """Whether the process ever used CUDA or NCCL."""
        return any(name.startswith(("zernel.cuda.", "zernel.nccl.", "zernel.gpu.")) for name in self._ever)

    def read(self, seen: Observation, gpu: float) -> Spell | None:
        """Takes a point of the process; what was evaluated because of it.

        `gpu` is the use of the process's GPU, 0 to 1, for where its own share of it is not known.
        """
        spell = None
        if seen.time > self._now:
            if not self._last:
                self._last = seen.time
            elif self._now - self._last >= ns(self._config.interval):
                spell = self._evaluate(gpu)
            self._now = seen.time
        self._ever.add(seen.name)
        if seen.name in _LEVELS:
            self._totals[seen.name] = seen.value
        else:
            before = self._totals.get(seen.name, 0.0 if seen.delta else seen.value)
            total = before + seen.value if seen.delta else seen.value
            self._gained[seen.name] += max(total - before, 0.0)
            self._totals[seen.name] = total
        return spell

    def _evaluate(self, gpu: float) -> Spell:
        """The time since the last evaluation belongs to the phase so far; then a vote is cast."""
        spell = Spell(self._last, self._now, self._vote.state)
        signals = self._signals((self._now - self._last) / 1e9, gpu)
        self._vote.cast(phase_by_rules(signals, self._config))
        self._gained.clear()
        self._last = self._now
        return spell

    def _signals(self, elapsed_s: float, gpu: float) -> Signals:
        return Signals(
            is_ml=self.is_ml,
            nccl_active=self._gained["zernel.nccl.collective.duration"] > 0,
            futex_waits=int(self._gained["zernel.distributed.sync.wait"]),
            io_wait=min(self._gained["zernel.process.io.wait"] / elapsed_s, 1.0),
            gpu=self._totals.get("zernel.gpu.process.utilization", gpu),
            cpu_burst_ns=ns(self._totals.get("zernel.process.cpu.burst", 0.0)),
            gpu_synced=self._totals.get("zernel.cuda.sync.wait", 0.0) > 0,
        )
