"""The configuration of the ebpf receiver."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializerFunctionWrapHandler, WrapSerializer

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, PositiveDuration


class ProcessesConfig(ComponentConfig):
    """Selects the processes to watch. A process must meet every condition; an empty one selects all. Patterns are those
    of a shell: `python*`."""

    names: tuple[str, ...] = ()
    """Patterns. The name of the process or of its executable must match one."""
    cgroups: tuple[str, ...] = ()
    """Patterns. The path of its control group must match one."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables and a pattern for each. The process must have been started with all of them."""


SamplesPerSecond = Annotated[int, Field(ge=0, le=999)]


_LONGEST_WAIT = 0.01


def _checked_wait(seconds: float) -> float:
    if seconds > _LONGEST_WAIT:
        raise ValueError("must be at most 10ms: a stack shows where in the loop all the time was that it stands for")
    return seconds


class StacksConfig(ComponentConfig):
    """How often the Python stacks of processes that train are read."""

    rate: Annotated[SamplesPerSecond, Field(ge=1)] = 19
    """Samples a second of each CPU. There is one clock: a higher `sampler_frequency` is the rate of stacks, too."""
    off_cpu: Annotated[PositiveDuration, AfterValidator(_checked_wait)] = 0.001
    """Seconds, at most 0.01. A thread that has waited for so long since its stack before has its stack read."""


def _stacks(value: Any) -> Any:
    if isinstance(value, bool):
        return StacksConfig() if value else None
    if isinstance(value, Mapping | StacksConfig):
        return value
    raise ValueError("must be true, false, or {rate: 19, off_cpu: 1ms}")


def _stacks_or_false(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return write(value) if value else False


class EbpfConfig(ComponentConfig):
    """Which processes to watch, how often to read, and how much memory and CPU to use."""

    processes: ProcessesConfig = ProcessesConfig.model_construct()
    """Selects the processes to watch."""
    interval: PositiveDuration = 1.0
    """Seconds between two readings of the kernel's counters."""
    rescan_interval: PositiveDuration = 5.0
    """Seconds between two scans for new processes and libraries. If eBPF does not work, seconds between two tries."""
    significant_figures: Literal[2, 3] = 2
    """Significant decimal digits of a latency. 2 digits take 18 kB for each series, 3 digits take 135 kB."""
    max_processes: Annotated[int, Field(ge=1, le=65536)] = 256
    """Most processes that are counted at the same time. Calls of others are counted as lost."""
    max_series: Annotated[int, Field(ge=1, le=65536)] = 512
    """Most series (process, operation, phase) at the same time. Calls of others are counted as lost."""
    single_stepped: bool = False
    """Also probes frequent functions whose probe takes 10 us in place of 1 us."""
    long_wait: Duration = 0.0001
    """Seconds. A wait for the GPU that is at least this long is also a span."""
    sampler_frequency: SamplesPerSecond = 19
    """Samples a second of the code that each CPU runs, in processes that train; 0 means none, or those of `stacks`."""
    stacks: Annotated[StacksConfig | None, BeforeValidator(_stacks), WrapSerializer(_stacks_or_false)] = None
    """Reports the lines of Python code in which processes that train spend their time. `true` means the defaults."""
    max_overhead: Annotated[float, Field(ge=0, le=1)] = 0.03
    """Ratio of one CPU that probes may take of each process; 0 means no limit. Above it, probes are sampled, those of
    launches first."""

    max_step_rate: Annotated[float, Field(ge=0)] = 500.0
    """Steps a second of all processes that are read one by one; 0 means no limit. Above it, whole steps of less than
    5 ms are left out, evenly, and count like the others. Of ranks and on GPUs, all steps are read."""

    @property
    def clock_frequency(self) -> int:
        """Ticks a second of the sampler's clock on each CPU; 0 for none."""
        return max(self.sampler_frequency, self.stacks.rate if self.stacks else 0)
