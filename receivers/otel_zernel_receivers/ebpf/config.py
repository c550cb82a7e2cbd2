"""The configuration of the ebpf receiver."""

from typing import Annotated, Literal

from pydantic import Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration, PositiveDuration


class ProcessesConfig(ComponentConfig):
    """Which processes are told of; what is left out is no condition. Patterns are those of a shell: `python*`."""

    names: tuple[str, ...] = ()
    """Patterns, one of which the name of the process or of its executable must match."""
    cgroups: tuple[str, ...] = ()
    """Patterns, one of which the path of its control group must match."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables that it must have been started with, and a pattern for the value of each."""


class EbpfConfig(ComponentConfig):
    """What to watch, how closely, and how much memory that may take."""

    processes: ProcessesConfig = ProcessesConfig()
    """Which processes are told of."""
    interval: PositiveDuration = 1.0
    """Seconds between two readings of the kernel's counters."""
    rescan_interval: PositiveDuration = 5.0
    """Seconds between two looks for new programs and libraries; also between two tries where eBPF does not work."""
    significant_figures: Literal[2, 3] = 2
    """Decimal digits of a latency that are kept: 2 takes 18 kB for a series, 3 takes 135 kB."""
    max_processes: Annotated[int, Field(ge=1, le=65536)] = 256
    """Processes counted at the same time; calls of further ones are counted as lost."""
    max_series: Annotated[int, Field(ge=1, le=65536)] = 512
    """Series (process, operation, phase) counted at the same time; calls of further ones are counted as lost."""
    single_stepped: bool = False
    """Also probe often-called functions at which each hit takes 10 us in place of 1."""
    long_wait: Duration = 0.001
    """Seconds from which on each wait for the GPU is also a span."""
    max_overhead: Annotated[float, Field(ge=0, le=1)] = 0.03
    """What probes may take of one CPU, for each process; beyond it the hottest are sampled. 0 is no limit."""
