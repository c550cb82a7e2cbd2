"""The configuration of the ebpf receiver."""

from typing import Annotated, Literal

from pydantic import Field

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


class EbpfConfig(ComponentConfig):
    """Which processes to watch, how often to read, and how much memory and CPU to use."""

    processes: ProcessesConfig = ProcessesConfig()
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
    sampler_frequency: Annotated[int, Field(ge=0, le=999)] = 19
    """Samples a second of the code that each CPU runs, in processes that train; 0 means none."""
    stacks: bool = False
    """Reports the lines of Python code in which processes that train spend their time."""
    max_overhead: Annotated[float, Field(ge=0, le=1)] = 0.03
    """Ratio of one CPU that probes may take of each process; 0 means no limit. Above it, probes are sampled, those of
    launches first."""
