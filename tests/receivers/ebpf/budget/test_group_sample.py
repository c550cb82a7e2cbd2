"""The state of sampled groups, from one reading to the next."""

from collections.abc import Collection, Iterable

import numpy as np
import pytest

from otel_zernel.testing import FakeClock, make_context
from otel_zernel_receivers.ebpf.budget.overhead import Group, Overhead
from otel_zernel_receivers.ebpf.budget.sampling import Sampling
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Loss
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import HitCount, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, Totals

JOB = WatchedProcess(0, 1, 1 << 23)
"""No process has this pid, so its CPU time is unknown and the clock is the scale."""
COST = ProbeCost(500, 1000, 500, 500)
LAUNCHES = (JOB, Operation.RUNTIME_LAUNCH, 0)


class Job:
    """Makes `rate` launches a second. They are counted while the probes are on."""

    def __init__(self, rate: float = 100) -> None:
        self.rate = rate
        self.clock = FakeClock()
        self.counted = 0
        self.on = set(Group)
        self.may_begin = True

    def run(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.counted += round(self.rate * seconds) * (Group.LAUNCH in self.on)

    def totals(self) -> Totals:
        return np.array([self.counted], np.uint64)

    def hits(self) -> dict[WatchedProcess, HitCount]:
        return {JOB: HitCount(self.counted)}

    def calls(self, since: Totals, until: Totals) -> dict[SeriesKey, int]:
        return {LAUNCHES: int(until[0] - since[0])} if (until != since).any() else {}

    def switch_on(self, groups: Iterable[Group]) -> Collection[Group]:
        self.on |= set(groups)
        return self.on

    def switch_off(self, groups: Iterable[Group]) -> None:
        self.on -= set(groups)

    def may_switch_on(self) -> bool:
        return self.may_begin


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def overhead() -> Overhead:
    return Overhead(0.03, COST)


@pytest.fixture
def sampling(job: Job, overhead: Overhead) -> Sampling:
    return Sampling(overhead, job, job, COST, make_context(clock=job.clock))


def pass_interval(job: Job, sampling: Sampling) -> None:
    """One second, with the switches that are due in it."""
    end = job.clock.monotonic() + 1
    for switch in sampling.switches(1.0):
        job.run(switch.delay)
        switch.apply()
    job.run(end - job.clock.monotonic())


def test_a_group_that_is_on_all_the_time_is_no_sample(job: Job, sampling: Sampling) -> None:
    job.run(1)
    coverage = sampling.finish_reading()
    assert (coverage.seconds, coverage.shares, coverage.calls) == (1.0, {}, {})
    assert not sampling.is_active


def test_the_calls_of_a_sample_represent_the_whole_reading(job: Job, sampling: Sampling, overhead: Overhead) -> None:
    overhead.shares = {Group.LAUNCH: 0.25}
    for _ in range(3):
        pass_interval(job, sampling)
        coverage = sampling.finish_reading()
        assert coverage.shares == {Group.LAUNCH: pytest.approx(0.25, abs=0.02)}
        assert coverage.calls == {LAUNCHES: pytest.approx(100, rel=0.1)}


def test_a_sample_represents_earlier_readings_without_one(job: Job, sampling: Sampling, overhead: Overhead) -> None:
    overhead.shares = {Group.LAUNCH: 0.5}
    pass_interval(job, sampling)
    sampling.finish_reading()
    job.may_begin = False
    for _ in range(2):
        pass_interval(job, sampling)
        coverage = sampling.finish_reading()
        assert (coverage.shares, coverage.calls) == ({Group.LAUNCH: 0.0}, {})
    job.may_begin = True
    pass_interval(job, sampling)
    coverage = sampling.finish_reading()
    assert coverage.shares == {Group.LAUNCH: pytest.approx(0.5 / 3, abs=0.02)}
    assert coverage.calls == {LAUNCHES: pytest.approx(300, rel=0.1)}


def test_the_reading_in_which_probes_come_back_is_the_last_sample(
    job: Job, sampling: Sampling, overhead: Overhead
) -> None:
    overhead.shares = {Group.LAUNCH: 0.5}
    pass_interval(job, sampling)
    sampling.finish_reading()
    overhead.shares = {}
    assert sampling.is_active
    pass_interval(job, sampling)
    assert sampling.finish_reading().shares == {Group.LAUNCH: 1.0}
    assert not sampling.is_active
    pass_interval(job, sampling)
    assert sampling.finish_reading().shares == {}


def test_only_sampling_explains_calls_without_a_start(job: Job, sampling: Sampling, overhead: Overhead) -> None:
    losses = {Loss.NO_START: 3, Loss.TOO_DEEP: 1}
    assert sampling.unexpected(losses) == losses
    overhead.shares = {Group.LAUNCH: 0.5}
    assert sampling.unexpected(losses) == {Loss.TOO_DEEP: 1}


@pytest.mark.parametrize(("rate", "first_share"), [(200_000, 0.25), (40_000, 1.0), (29_000, None)])
def test_a_job_above_the_limit_is_sampled_within_its_first_second(rate: float, first_share: float | None) -> None:
    """The first reading comes after ten seconds, and a check after each quarter of a second."""
    job = Job(rate)
    overhead = Overhead(0.03, COST)
    sampling = Sampling(overhead, job, job, COST, make_context(clock=job.clock))
    for _ in range(4):
        job.run(0.25)
        sampling.act()
    job.run(9)
    shares = sampling.finish_reading().shares
    assert shares == ({Group.LAUNCH: pytest.approx(first_share / 10)} if first_share else {})
    assert (Group.LAUNCH in job.on) == (first_share is None)


def test_a_job_is_sampled_within_a_second_of_its_start_whenever_it_starts() -> None:
    job = Job(0)
    sampling = Sampling(Overhead(0.03, COST), job, job, COST, make_context(clock=job.clock))
    for _ in range(30):
        job.run(0.25)
        sampling.act()
    job.rate = 100_000
    for _ in range(4):
        job.run(0.25)
        sampling.act()
    assert Group.LAUNCH not in job.on
