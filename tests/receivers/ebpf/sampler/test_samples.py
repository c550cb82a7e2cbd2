"""The samples of a training job agree with the job's own clock."""

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from otel_zernel_libraries.training.ledger import Activity, Snapshot
from otel_zernel_libraries.training.ledger.snapshots import SAMPLED, WAITS
from otel_zernel_receivers.ebpf.config import EbpfConfig, StacksConfig
from otel_zernel_receivers.ebpf.kernel.kernel_structs import GIL, NUMBER, PLACES, ThreadState
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.tables.samples import Frames, SampledStack, StackCount
from otel_zernel_receivers.ebpf.tables.tables import Limits, Tables
from tests.receivers.ebpf.jobs.operator_runs import snapshots_of
from tests.receivers.ebpf.sampler.pythons import MINORS, python_of
from tests.receivers.ebpf.sampler.test_runtimes import runtime_of
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, metrics_of, reading, spans_of
from tests.waiting import measured

JOB, DEEP_JOB, WAITING_JOB, QUEUE_JOB = (
    str(Path(__file__).with_name(name)) for name in ("job.py", "deep_job.py", "waiting_job.py", "queue_job.py")
)
CONFIG = EbpfConfig(sampler_frequency=997, max_overhead=0)
"""997 is prime: the clock does not beat with the job. Without a limit, a busy machine has no probes sampled."""


def close(samples: int) -> float:
    """The allowed difference of a share: 3.6 times its standard deviation, at most (0.04 for 2,000 samples)."""
    return 3.6 * math.sqrt(0.25 / samples)


class Job(NamedTuple):
    """A job that trains, and is sampled."""

    process: "subprocess.Popen[str]"
    watch: Watch
    tables: Tables
    gil: bytes | None
    """As the kernel knows it."""

    def work(self) -> dict[str, float]:
        """The CPU seconds of each activity, by the job's own clock."""
        self.watch.taken()
        with reading(self.watch):
            spent: dict[str, float] = json.loads(told(self.process))
        return spent

    def samples(self) -> Counter[tuple[object, str]]:
        """The samples of its work, by thread id and activity."""
        metric = metrics_of(self.watch.read()).get("zernel.samples")
        found: Counter[tuple[object, str]] = Counter()
        for point in metric.sum.data_points if metric else ():
            attributes = attributes_of(point)
            found[attributes.get("thread_id"), str(attributes["zernel_activity"])] += point.as_int
        return found

    def frames(self) -> Counter[Frames]:
        """How often it was in which Python frames, until its next line."""
        assert self.process.stdout
        self.stacks()
        self.process.stdout.readline()
        found: Counter[Frames] = Counter()
        for sampled, count in self.stacks().items():
            if frames := self.tables.samples.frames(sampled.stack):
                found[frames] += count.samples
        return found

    def waits(self) -> list[tuple[int, SampledStack, StackCount]]:
        """Its waits until its next line, with the code of the innermost frame."""
        self.stacks()
        told(self.process)
        innermost = ((self.tables.samples.frames(of.stack), of, count) for of, count in self.stacks().items())
        return [(frames.places[0].code, of, count) for frames, of, count in innermost if frames and not of.code]

    def stacks(self) -> Mapping[SampledStack, StackCount]:
        """Those since the last call."""
        self.tables.samples.gather()
        readings = self.tables.samples.read()
        return next((one.stacks for one in readings if one.process.pid == self.process.pid), {})


def told(process: "subprocess.Popen[str]", order: str = "next") -> str:
    """The next line of a job, after a line to it."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    return process.stdout.readline()


@contextmanager
def training(*command: str, config: EbpfConfig = CONFIG) -> Iterator[Job]:
    loaded: list[LoadedProbes] = []

    def keep(limits: Limits) -> LoadedProbes:
        loaded.append(load(limits))
        return loaded[-1]

    with (
        Watch(config, loader=keep) as watch,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout
            assert process.stdout.readline() == "training\n"
            watch.attach()
            assert told(process) == "training\n"
            watch.read()
            yield Job(process, watch, loaded[-1].tables, loaded[-1].bpf.maps["gils"].get(NUMBER.pack(process.pid)))
        finally:
            process.kill()


def assert_close(job: Job) -> None:
    """Chance alone makes one of some thousand measurements differ, and there are dozens of them."""
    shares, expected = measured(lambda: shares_of(job), lambda both: both[0] == both[1])
    assert shares == expected


def shares_of(job: Job) -> tuple[dict[str, float], object]:
    """The part of each activity in the samples of a job's work, and in the work."""
    spent = job.work()
    of_thread = {activity: count for (tid, activity), count in job.samples().items() if tid == job.process.pid}
    samples, total = sum(of_thread.values()), sum(spent.values())
    shares = {activity: of_thread.get(activity, 0) / samples for activity in spent}
    return shares, pytest.approx({one: seconds / total for one, seconds in spent.items()}, abs=close(samples))


@pytest.mark.parametrize("minor", MINORS)
def test_the_samples_of_each_version_of_python_agree_with_its_own_clock(
    loadable: None, standin: Standin, minor: int
) -> None:
    with training(python_of(minor), JOB, "2", str(standin.cudart)) as job:
        assert_close(job)


def test_the_samples_of_pytorch_agree_with_its_own_clock(loadable: None, python: str) -> None:
    with training(python, JOB, "3") as job:
        assert_close(job)


def test_snapshots_have_the_samples_of_their_thread(loadable: None, python: str) -> None:
    with training(python, JOB, "3") as job:
        shares, expected = measured(lambda: shares_in_snapshots(job), lambda both: both[0] == both[1])
    assert shares == expected


def shares_in_snapshots(job: Job) -> tuple[dict[str, float], object]:
    """As `shares_of`, by the snapshots of the job's passes."""
    spent = job.work()
    spans = [span for span in spans_of(job.watch.read(), job.process.pid) if span.name == "backward"]
    first, *_, last = (snapshots_of(span)[1] for span in sorted(spans, key=lambda span: span.end_time_unix_nano))
    samples = [after - before for before, after in zip(first.samples, last.samples, strict=True)]
    waits = sum(last.times[1:]) - sum(first.times[1:])
    known_us = last.frame_times[0] - first.frame_times[0]
    assert 0.99e6 * sum(samples) / 997 < known_us < 1.01e6 * sum(samples) / 997 + waits / 1000
    shares = {str(activity): count / sum(samples) for activity, count in zip(SAMPLED[1:], samples[1:], strict=True)}
    total = sum(spent.values())
    return shares, pytest.approx({one: seconds / total for one, seconds in spent.items()}, abs=close(sum(samples)))


@pytest.mark.parametrize("minor", MINORS)
def test_the_kernel_knows_the_gil_of_a_training_process(loadable: None, standin: Standin, minor: int) -> None:
    with training(python_of(minor), JOB, "1", str(standin.cudart)) as job:
        runtime = runtime_of(job.process.pid)
        assert runtime
        assert job.gil == np.array((runtime.gil.start, runtime.gil.stop), GIL).tobytes()


@pytest.mark.parametrize("minor", MINORS)
def test_the_python_frames_of_a_thread_are_found(loadable: None, standin: Standin, minor: int) -> None:
    with training(python_of(minor), DEEP_JOB, "0.5", str(standin.cudart)) as job:
        codes: list[tuple[int, int]] = json.loads(told(job.process))
        found = job.frames()
        ((frames, _),) = found.most_common(1)
        assert [place.code for place in frames.places] == [address for address, _ in codes]
        assert not frames.is_cut | frames.is_broken
        if minor >= 11:
            for place, (address, length) in zip(frames.places, codes, strict=True):
                assert 0 < place.instruction - address < length + 256  # the code object has its instructions at its end
        assert sum(one.is_broken for one in found) == 0
        assert job.process.stdin
        job.process.stdin.write("next\n")
        job.process.stdin.flush()
        ((deep, _),) = job.frames().most_common(1)
        assert (len(deep.places), deep.is_cut) == (PLACES, True)
        assert deep.places[0].code == codes[0][0]


@pytest.mark.parametrize("minor", MINORS)
def test_the_python_frames_of_waits_are_found(loadable: None, standin: Standin, minor: int) -> None:
    with training(python_of(minor), WAITING_JOB, str(standin.cudart)) as job:
        address = int(told(job.process))
        waits = [(of, count) for code, of, count in job.waits() if code == address]
        assert {of.state for of, _ in waits} == {ThreadState.TIMER}
        assert sum(count.samples for _, count in waits) == 3
        assert 0.59 < sum(count.waited_ns for _, count in waits) / 1e9 < 1.2, "a busy machine wakes a thread late"
        waits = [(of, count) for code, of, count in job.waits() if code == address]
        waited = sum(count.waited_ns for _, count in waits) / 1e9
        assert waited > 1500 * 0.001
        assert sum(count.samples for _, count in waits) <= 200 * waited * 1.5 + 21, "at most 200 stacks a second"


def test_a_stack_of_a_wait_is_read_after_off_cpu(loadable: None, standin: Standin) -> None:
    config = EbpfConfig(stacks=StacksConfig.model_validate({"off_cpu": "10ms"}), max_overhead=0)
    with training(sys.executable, WAITING_JOB, str(standin.cudart), config=config) as job:
        address = int(told(job.process))
        told(job.process)
        waits = [count for code, _, count in job.waits() if code == address]
        waited = sum(count.waited_ns for count in waits) / 1e9
        assert waited > 1, "short waits are added up"
        assert sum(count.samples for count in waits) * 0.01 <= waited


def test_a_wait_to_hand_something_to_another_thread_is_told_from_one_to_get_something(
    loadable: None, python: str
) -> None:
    """The kernel knows the functions from 0.2 s after their first stack on."""
    with training(python, QUEUE_JOB) as job:
        waits = measured(lambda: waits_for_a_queue(job, "put"), is_all_to_put, attempts=10)
        assert is_all_to_put(waits), waits
        waits = measured(lambda: waits_for_a_queue(job, "get"), lambda of: of[0] == 0, attempts=10)
        assert waits[0] == 0


def test_the_code_of_a_wait_shows_on_which_side_of_the_backward_pass_it_is(loadable: None, python: str) -> None:
    with training(python, QUEUE_JOB) as job:
        waits = measured(lambda: waits_for_a_queue(job, "lock"), is_all_to_put, attempts=10)
        assert is_all_to_put(waits), waits
        first, last = snapshots_around(job, "lock")
        assert first.before_backward == last.before_backward
        first, last = snapshots_around(job, "sleep")
    timer = WAITS.index(Activity.TIMER)
    slept = last.times[ThreadState.TIMER] - first.times[ThreadState.TIMER]
    assert slept > 0.2e9
    assert last.before_backward[timer] - first.before_backward[timer] == pytest.approx(slept / 1000, rel=0.1)


def is_all_to_put(waits: tuple[int, int]) -> bool:
    put, locked = waits
    return 0.9 * locked < put < 1.1 * locked


def waits_for_a_queue(job: Job, order: str) -> tuple[int, int]:
    """The ns that a job waits for locks that give it no batch, and that it waits for any lock, in some steps."""
    first, last = snapshots_around(job, order)
    return last.giving - first.giving, last.times[ThreadState.LOCK] - first.times[ThreadState.LOCK]


def snapshots_around(job: Job, order: str) -> tuple[Snapshot, Snapshot]:
    """Those of a job before and after some steps."""
    job.watch.taken()
    with reading(job.watch):
        assert told(job.process, order) == "trained\n"
    spans = [span for span in spans_of(job.watch.read(), job.process.pid) if span.name == "backward"]
    first, *_, last = (snapshots_of(span)[1] for span in sorted(spans, key=lambda span: span.end_time_unix_nano))
    return first, last


def test_nothing_is_sampled_without_a_frequency(loadable: None, standin: Standin) -> None:
    with training(sys.executable, JOB, "0.3", str(standin.cudart), config=EbpfConfig(sampler_frequency=0)) as job:
        job.work()
        assert not job.samples()
