"""The probes on the files of this test run, and the kernel's tables, without a session around them."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.probed_files import ProbedFiles
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.probes.search import Find, PlaceSearch
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
from otel_zernel_receivers.ebpf.tables.tables import Limits, Tables
from tests.receivers.ebpf.watching import TEST_RUN
from tests.waiting import wait_for


def own_scanner() -> Scanner:
    """Scans for the programs of this test run."""
    return Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]}))


@dataclass
class Probed:
    """The loaded programs, and the files that they are attached to."""

    loaded: LoadedProbes
    files: ProbedFiles
    scanner: Scanner = field(default_factory=own_scanner)

    @property
    def tables(self) -> Tables:
        return self.loaded.tables

    def update(self) -> None:
        """Scans, and waits until the kernel has taken off the probes that it must."""
        self.files.update(self.scanner.scan())
        wait_for(self.files.may_switch_on)

    def launches(self) -> int:
        """The launches since the last reading."""
        readings = self.tables.read().series
        return sum(int(reading.counts.sum()) for reading in readings if reading.operation == Operation.RUNTIME_LAUNCH)


@contextmanager
def probed(
    context: Context | None = None, most: int | None = None, find: Find = find_attach_points
) -> Iterator[Probed]:
    """Nothing is probed before the first `update`. `most` and `find` are those of `ProbedFiles` and `PlaceSearch`."""
    context = context or make_context(clock=SystemClock())
    with closing(load(Limits())) as loaded:
        search = PlaceSearch(at_any_cost=False, find=find)
        with closing(ProbedFiles(loaded.bpf, loaded.mode, context, search, most)) as files:
            yield Probed(loaded, files)
