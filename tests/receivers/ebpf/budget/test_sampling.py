"""What is not watched is never taken for watched."""

import logging
import os
import resource
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.budget.overhead import Group, Overhead
from otel_zernel_receivers.ebpf.budget.sampling import Sampling, Watched
from otel_zernel_receivers.ebpf.probed_files import Attachments
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import TEST_RUN


@contextmanager
def room_for(count: int) -> Iterator[None]:
    """No more than so many files can be opened, nor links made."""
    free = [os.dup(0) for _ in range(count + 1)]
    for fd in free:
        os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_probes_that_cannot_be_put_on_again_are_not_taken_for_watched(
    loadable: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    context = make_context(clock=SystemClock())
    overhead = Overhead(limit=0.01, call_ns=100)
    overhead.shares = {Group.LAUNCH: 0.5}

    def watched(files: int) -> tuple[Watched, int]:
        """A window in which so many files have room for their links, and the launches that are told of it."""
        *_, (_, begin), (_, end) = sampling.switches(1.0)
        while not attachments.may_switch_on():
            time.sleep(0.01)
        with room_for(files):
            begin()
        program.do("cudaLaunchKernel times=100")
        end()
        taken = sampling.take()
        return taken, sum(int(one.counts.sum()) for one in taken.told(loaded.tables.read().series))

    with (
        closing(load(Limits())) as loaded,
        closing(Attachments(loaded.bpf, loaded.mode, context, at_any_cost=False)) as attachments,
        standin.start() as program,
        caplog.at_level(logging.WARNING),
    ):
        for library in ("libcudart.so.12", "libcuda.so.1"):
            program.do(f"load {library}")
        attachments.update(Scanner(selection=Selection(environment={TEST_RUN: os.environ[TEST_RUN]})).scan())
        sampling = Sampling(overhead, attachments, loaded.tables, loaded.cost, context)
        (_, leave), *_ = sampling.switches(1.0)
        leave()
        sampling.take()
        for files in (0, 1):
            none, launches = watched(files)
            assert (none.shares, launches) == ({Group.LAUNCH: 0.0}, 0)
        again, launches = watched(64)
        assert 0 < again.shares[Group.LAUNCH] < 1
        assert launches > 100
    assert caplog.text.count("Cannot put probes on again") == 1, "it is said once"
