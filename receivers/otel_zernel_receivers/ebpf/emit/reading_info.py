"""What the points of a reading are made of, beside the kernel's tables."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from otel_zernel.otlp.points import Descriptor, Period
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.emit.ends import ProcessEnd
from otel_zernel_receivers.ebpf.emit.takers import TakerOf, is_other
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.processes.scanner import Reason
from otel_zernel_receivers.ebpf.processes.workers import WorkersReading
from otel_zernel_receivers.ebpf.tables.process_table import LimitsReading, WatchedProcess

OnSeries = Callable[[int, bytes, Descriptor, bytes], None]
"""Called for each series of a process that has a point: pid, encoded resource, metric, and the attributes as encoded
for its points."""


@dataclass(frozen=True, slots=True)
class ReadingInfo:
    """The data of a reading that is not in the kernel's tables."""

    number: int
    """Of this reading since the receiver started, from 1."""
    period: Period
    coverage: Coverage
    skipped: Mapping[Reason, int] = field(default_factory=dict)
    """Items that the last scan skipped."""
    missing_marks: Mapping[int, Collection[Mark]] = field(default_factory=dict)
    """By pid."""
    workers: Sequence[WorkersReading] = ()
    ends: Sequence[ProcessEnd] = ()
    limits: Sequence[LimitsReading] = ()
    taker_of: TakerOf = is_other
    offset_ns: int = 0
    """From CLOCK_MONOTONIC to Unix time."""


def period_between(since_ns: int, until_ns: int) -> Period:
    """The period of a reading (Unix time)."""
    return Period(since_ns, until_ns)


@dataclass(frozen=True, slots=True)
class MetricEncoding:
    """What the points of all readings have in common."""

    layout: HdrLayout
    cost: ProbeCost
    on_series: OnSeries
    resource_of: Callable[[WatchedProcess], bytes]
    """The encoded resource of a process."""
