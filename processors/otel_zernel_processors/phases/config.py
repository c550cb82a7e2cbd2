"""The configuration of the phases processor."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, PositiveDuration, Ratio


class SignalsConfig(ComponentConfig):
    """The thresholds of the seven rules; see signals.py."""

    interval: PositiveDuration = 0.1
    """Seconds between evaluations."""
    stability: Annotated[int, Field(ge=0)] = 3
    """How many equal votes in a row make a new phase; 0 or 1: the first does."""
    collectives: bool = True
    """Whether NCCL activity with futex waits counts as a collective."""
    data_loading_io_wait: Ratio = 0.3
    """Above this share of time waiting for I/O, with the GPU below `data_loading_gpu`, data is being loaded."""
    data_loading_gpu: Ratio = 0.1
    compute_gpu: Ratio = 0.8
    """Above this GPU use, without CPU bursts, the GPU computes."""
    optimizer_burst: PositiveDuration = 0.005
    """A CPU burst shorter than this (s), after a GPU sync was seen, is an optimizer's step."""
    mixed_io_wait: Ratio = 0.15
    """Above this share of time waiting for I/O, with the GPU between `data_loading_gpu` and `compute_gpu`, data is
    being loaded."""


class TracesConfig(ComponentConfig):
    """Which steps become traces."""

    sample: Annotated[int, Field(ge=0)] = 100
    """Every how many steps; 0 for none."""
    slowest: Annotated[int, Field(ge=0)] = 1
    """How many of the slowest of each interval and process, besides."""
    slow_step: Duration = 0.0
    """And all steps longer than this (s); 0 for none."""
    long_sync: Duration = 0.001
    """Syncs longer than this (s) get a span of their own."""
    max_steps: Annotated[int, Field(ge=1)] = 100
    """How many steps of an interval and process at most; more are counted as dropped."""
    max_spans: Annotated[int, Field(ge=1)] = 1000
    """How many spans a trace has at most; more are counted as dropped."""


class VerdictConfig(ComponentConfig):
    """From which share of the window's time on a process is bound by something."""

    input_bound: Ratio = 0.2
    """Data loading."""
    communication_bound: Ratio = 0.2
    """Collectives that the training thread waits for."""
    optimizer_bound: Ratio = 0.3
    """The optimizer."""
    compute_bound: Ratio = 0.7
    """Computation, if nothing of the above."""
    unstable: Annotated[float, Field(ge=0)] = 0.5
    """The coefficient of variation of the steps' durations, if nothing of the above."""
    straggler: Ratio = 0.1
    """The share of a step by which a rank makes the others wait."""
    slow_link: Ratio = 0.2
    """The share of a step that even the last rank to arrive waits for a collective."""
    margin: Ratio = 0.1
    """A verdict stands until its value is below its threshold by this share of it."""
    stability: Annotated[int, Field(ge=1)] = 2
    """How many intervals in a row a new verdict has to hold before it is given."""


class PhasesConfig(ComponentConfig):
    """Where phases come from, how often they are reported, and what is made of them."""

    source: Literal["auto", "scopes", "signals"] = "auto"
    """`scopes`: PyTorch's own (exact). `signals`: the kernel's counters. `auto`: scopes where a process has them."""
    interval: PositiveDuration = 10.0
    """Seconds between reports, in the time of the spans."""
    window: PositiveDuration = 60.0
    """How long (s) a step counts towards fractions, rates and verdicts, in steps of the interval."""
    lateness: Duration = 2.0
    """How long (s) to wait for spans that come late; later ones are dropped and counted."""
    bridge: Duration = 0.0005
    """A gap shorter than this (s) between two scopes of one phase belongs to that phase."""
    idle_timeout: PositiveDuration = 300.0
    """Seconds without anything from a process after which it counts as ended."""
    signals: SignalsConfig = SignalsConfig()
    """The rules for processes without scopes."""
    traces: TracesConfig | None = TracesConfig()
    """Which steps become traces; null for none."""
    verdict: VerdictConfig = VerdictConfig()
    """What a process is bound by."""
    job_by: tuple[str, ...] = ("zernel.job.id", "k8s.job.name", "service.name")
    """Resource attributes that name the job a process belongs to, the first that is there."""
    pass_through: bool = False
    """Whether the spans that phases are made of go on as well."""
    max_processes: Annotated[int, Field(ge=1)] = 1000
    """How many processes to follow at most; spans of more are dropped and counted."""
    max_spans: Annotated[int, Field(ge=10)] = 10_000
    """How many spans of a process to hold at most; more are dropped and counted."""

    @model_validator(mode="after")
    def _fits(self) -> "PhasesConfig":
        if self.window < self.interval:
            raise ValueError("the window must be at least as long as the interval")
        if self.signals.data_loading_gpu > self.signals.compute_gpu:
            raise ValueError("signals: data_loading_gpu must not be above compute_gpu")
        return self


def ns(seconds: float) -> int:
    """Whole nanoseconds of a duration in seconds."""
    return round(seconds * 1e9)
