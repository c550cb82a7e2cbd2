"""The configuration of the phases processor."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, PositiveDuration, Ratio
from otel_zernel_libraries.training import semconv


class SignalsConfig(ComponentConfig):
    """The thresholds of the seven rules in signals/rules.py."""

    interval: PositiveDuration = 0.1
    """Shortest time between two evaluations, in s."""
    stability: Annotated[int, Field(ge=0)] = 3
    """A new phase needs this many equal evaluations in a row. 0 and 1: one is enough."""
    collectives: bool = True
    """Whether NCCL activity together with futex waits counts as a collective."""
    data_loading_io_wait: Ratio = 0.3
    """Data is being loaded if the share of time in I/O wait is above this and the GPU is below `data_loading_gpu`."""
    data_loading_gpu: Ratio = 0.1
    """GPU utilization, 0 to 1."""
    compute_gpu: Ratio = 0.8
    """The GPU computes if its utilization is above this and there are no CPU bursts."""
    optimizer_burst: PositiveDuration = 0.005
    """A CPU burst shorter than this (s) is an optimizer's step, if the process has ever waited for the GPU."""
    mixed_io_wait: Ratio = 0.15
    """Data is being loaded if the share of time in I/O wait is above this and the GPU is between `data_loading_gpu` and
    `compute_gpu`."""


class TracesConfig(ComponentConfig):
    """The choice of the steps that become traces."""

    sample: Annotated[int, Field(ge=0)] = 100
    """Every Nth step of a process. Of a job with several ranks: one step in N, the same ones on all ranks. 0 for
    none."""
    slowest: Annotated[int, Field(ge=0)] = 1
    """Number of slowest steps per interval and process or job, in addition."""
    slow_step: Duration = 0.0
    """All steps longer than this (s), in addition; 0 for none."""
    long_sync: Duration = 0.001
    """Syncs longer than this (s) get a span."""
    max_steps: Annotated[int, Field(ge=1)] = 100
    """Maximum number of steps per interval and process; more are dropped and counted, or merged."""
    merge_rest: bool = False
    """Whether the steps beyond `max_steps` are merged with their neighbours into spans `steps`."""
    max_spans: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of spans per step of a process; more are dropped and counted."""


class PhasesConfig(ComponentConfig):
    """The configuration of the phases processor."""

    source: Literal["auto", "scopes", "threads", "signals"] = "auto"
    """`scopes`: PyTorch's own scopes and passes (exact). `threads`: the states of the thread that calls CUDA most.
    `signals`: seven rules. `auto`: the first of them that a process has data for."""
    interval: PositiveDuration = 10.0
    """Time between reports, in s, by the timestamps of the spans."""
    window: PositiveDuration = 60.0
    """The last part of the time (s) that fractions and rates cover, in whole intervals. While it has only 1
    or 2 training steps, it is up to three times as long."""
    lateness: Duration = 2.0
    """How long (s) to wait for late spans. Spans that arrive later are dropped and counted."""
    bridge: Duration = 0.0005
    """A gap shorter than this (s) between two scopes of one phase belongs to that phase."""
    pace: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Seconds of data that arrive in a second, for a replay; 0 if only the data counts. null for live data."""
    idle_timeout: PositiveDuration = 300.0
    """A process without data for this time (s) has ended."""
    signals: SignalsConfig = SignalsConfig.model_construct()
    """The rules for processes without scopes."""
    traces: TracesConfig | None = TracesConfig.model_construct()
    """The choice of the steps that become traces; null for no traces."""
    verdict: Mapping[str, float] | None = None
    """No effect: verdicts follow from causes. Files of older releases have thresholds here."""
    job_by: tuple[str, ...] = (semconv.JOB_ID, "k8s.job.name", "service.name")
    """Resource attributes that name the job of a process. The first one that the process has counts."""
    pass_through: bool = False
    """Whether to forward the spans and the stacks that phases are made of."""
    code: bool = False
    """Whether to emit the stacks of each process by position, every 10 s."""
    profiles: bool = False
    """Whether to emit the stacks of each process as profiles, every `interval`, for exporters that take profiles."""
    max_processes: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of processes to follow. Spans of more are dropped and counted."""
    max_spans: Annotated[int, Field(ge=10)] = 10_000
    """Maximum number of spans to hold per process. More are dropped and counted."""

    @model_validator(mode="after")
    def _fits(self) -> "PhasesConfig":
        if self.window < self.interval:
            raise ValueError("the window must be at least as long as the interval")
        if self.signals.data_loading_gpu > self.signals.compute_gpu:
            raise ValueError("signals: data_loading_gpu must not be above compute_gpu")
        return self


def ns(seconds: float) -> int:
    """A duration in s as whole nanoseconds."""
    return round(seconds * 1e9)
