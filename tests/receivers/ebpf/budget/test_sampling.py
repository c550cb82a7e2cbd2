"""Probes that cannot be switched back on, on real files."""

import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.budget.overhead import Group, Overhead
from otel_zernel_receivers.ebpf.budget.sampling import Sampling
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from tests.receivers.ebpf.probed import probed
from tests.receivers.ebpf.standin import Standin
from tests.waiting import wait_for


@contextmanager
def room_for(count: int) -> Iterator[None]:
    """Limits the process to `count` more open files. A link takes one."""
    free = [os.dup(0) for _ in range(count + 1)]
    for fd in free:
        os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_group_that_cannot_be_put_on_again_counts_as_off(
    loadable: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    context = make_context(clock=SystemClock())
    overhead = Overhead(0.01, ProbeCost(50, 100, 100, 50))
    overhead.shares = {Group.LAUNCH: 0.5}

    def sampled(room: int) -> tuple[Coverage, int]:
        """A sample while `room` files can be opened: its coverage and its scaled number of launches."""
        *_, begin, end = sampling.switches(1.0)
        wait_for(here.files.may_switch_on)
        with room_for(room):
            begin.apply()
        program.do("cudaLaunchKernel times=100")
        end.apply()
        coverage = sampling.finish_reading()
        scaled = coverage.scaled(here.tables.read().series)  # also waits of the program for a disk
        return coverage, sum(int(one.counts.sum()) for one in scaled if coverage.is_sample(one))

    with (
        probed(context) as here,
        standin.start(loads=["libcudart.so.12", "libcuda.so.1"]) as program,
        caplog.at_level(logging.WARNING),
    ):
        here.update()
        sampling = Sampling(overhead, here.files, here.tables, here.loaded.cost, context)
        leave, *_ = sampling.switches(1.0)
        leave.apply()
        sampling.finish_reading()
        for room in (0, 1):
            coverage, launches = sampled(room)
            assert (coverage.shares, launches) == ({Group.LAUNCH: 0.0}, 0)
        again, launches = sampled(64)
        assert 0 < again.shares[Group.LAUNCH] < 1
        assert launches > 100
    assert caplog.text.count("Cannot attach the probes of launch again") == 1, "it is logged once"
