"""The samples of a training job agree with the job's own clock."""

import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from tests.receivers.ebpf.sampler.pythons import MINORS, installed, python_of, python_on_musl
from tests.receivers.ebpf.sampler.test_runtimes import runtime_of
from tests.receivers.ebpf.standin import Standin, compile_all
from tests.receivers.ebpf.talking import Talker, talking
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

    process: Talker
    watch: Watch
    tables: Tables
    gil: bytes | None
    """As the kernel knows it."""


@contextmanager
def all_training(commands: Iterable[Sequence[str]], config: EbpfConfig = CONFIG) -> Iterator[list[Job]]:
    """Jobs that train at the same time."""
    loaded: list[LoadedProbes] = []

    def keep(limits: Limits) -> LoadedProbes:
        loaded.append(load(limits))
        return loaded[-1]

    with Watch(config, loader=keep) as watch, ExitStack() as stack:
        processes = [stack.enter_context(talking(*command, first="training")) for command in commands]
        watch.attach()
        assert set(answers_of(processes)) == {"training"}
        watch.read()
        gils = loaded[-1].bpf.maps["gils"]
        yield [Job(process, watch, loaded[-1].tables, gils.get(NUMBER.pack(process.pid))) for process in processes]


@contextmanager
def training(*command: str, config: EbpfConfig = CONFIG) -> Iterator[Job]:
    with all_training([command], config) as (job,):
        yield job


@contextmanager
def training_in_each_version(script: str, *arguments: str) -> Iterator[dict[int, Job]]:
    """A job of each installed version 3.x of Python, by x."""
    pythons = installed()
    with all_training((python, script, *arguments) for python in pythons.values()) as jobs:
        yield dict(zip(pythons, jobs, strict=True))


def answers_of(processes: Iterable[Talker]) -> list[str]:
    """What each says after a line. They work for it at the same time."""
    asked = list(processes)
    for process in asked:
        process.say()
    return [process.line() for process in asked]


def stacks_of(jobs: Sequence[Job]) -> list[Mapping[SampledStack, StackCount]]:
    """The stacks of each job since the last call."""
    samples = jobs[0].tables.samples
    samples.gather()
    stacks = {of.process.pid: of.stacks for of in samples.read()}
    return [stacks.get(job.process.pid, {}) for job in jobs]


def assert_close(jobs: Sequence[Job], samples_of: Callable[[Job], Mapping[str, int]]) -> None:
    """Each activity has the part in the samples of a job's work that it has in the work, by the job's own clock.

    Chance alone makes one of some thousand measurements differ, and there are dozens of them.
    """

    def measure() -> tuple[list[dict[str, float]], list[object]]:
        jobs[0].watch.taken()
        with reading(jobs[0].watch):
            times = [json.loads(answer) for answer in answers_of(job.process for job in jobs)]
        samples = [samples_of(job) for job in jobs]
        return [parts(counts) for counts in samples], [
            pytest.approx(parts(spent), abs=close(sum(counts.values())))
            for counts, spent in zip(samples, times, strict=True)
        ]

    shares, expected = measured(measure, lambda both: both[0] == both[1])
    assert shares == expected


def parts(amounts: Mapping[str, float]) -> dict[str, float]:
    total = sum(amounts.values())
    return {name: amount / total for name, amount in amounts.items()}


def samples_in_metrics(job: Job) -> Counter[str]:
    """The samples of the job's main thread by activity."""
    counts: Counter[str] = Counter()
    for point in metrics_of(job.watch.read())["zernel.samples"].sum.data_points:
        attributes = attributes_of(point)
        if attributes.get("thread_id") == job.process.pid:
            counts[str(attributes["zernel_activity"])] += point.as_int
    return counts


def samples_in_snapshots(job: Job) -> dict[str, int]:
    """The same, from the snapshots of the job's passes."""
    spans = [span for span in spans_of(job.watch.read(), job.process.pid) if span.name == "backward"]
    first, *_, last = (snapshots_of(span)[1] for span in sorted(spans, key=lambda span: span.end_time_unix_nano))
    samples = [after - before for before, after in zip(first.samples, last.samples, strict=True)]
    waits = sum(last.times[1:]) - sum(first.times[1:])
    known_us = last.frame_times[0] - first.frame_times[0]
    assert 0.99e6 * sum(samples) / 997 < known_us < 1.01e6 * sum(samples) / 997 + waits / 1000
    return {str(activity): count for activity, count in zip(SAMPLED[1:], samples[1:], strict=True)}


def test_the_samples_of_each_version_of_python_agree_with_its_own_clock_and_the_kernel_knows_its_gil(
    loadable: None, standin: Standin
) -> None:
    with training_in_each_version(JOB, "1", str(standin.cudart)) as jobs:
        for minor, job in jobs.items():
            runtime = runtime_of(job.process.pid)
            assert runtime, minor
            assert job.gil == np.array((runtime.gil.start, runtime.gil.stop), GIL).tobytes(), minor
        assert_close(list(jobs.values()), samples_in_metrics)


def test_the_samples_of_pytorch_in_metrics_and_snapshots_agree_with_its_own_clock(loadable: None, python: str) -> None:
    with training(python, JOB, "3") as job:
        assert_close([job], samples_in_metrics)
        assert_close([job], samples_in_snapshots)


def test_the_python_frames_of_a_thread_are_found(loadable: None, standin: Standin) -> None:
    with training_in_each_version(DEEP_JOB, "0.5", str(standin.cudart)) as jobs:
        assert_frames(jobs)


@pytest.mark.soak
def test_the_python_frames_of_a_thread_on_musl_are_found(
    loadable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = compile_all(tmp_path, "push", platform.machine(), "musl-gcc")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with training(python_on_musl(), DEEP_JOB, "0.5", str(standin.cudart)) as job:
        assert_frames({11: job})


def assert_frames(jobs: Mapping[int, Job]) -> None:
    """The sampled frames of jobs are those that they are in. `jobs`: by the minor version of Python."""
    stacks_of(list(jobs.values()))
    codes: list[list[tuple[int, int]]] = list(map(json.loads, answers_of(job.process for job in jobs.values())))
    assert {job.process.line() for job in jobs.values()} == {"deeper"}
    for minor, frames, codes_of_job in zip(jobs, frames_of(list(jobs.values())), codes, strict=True):
        ((most, _),) = frames.most_common(1)
        assert [place.code for place in most.places] == [address for address, _ in codes_of_job], minor
        assert not most.is_cut | most.is_broken, minor
        if minor >= 11:
            for place, (address, length) in zip(most.places, codes_of_job, strict=True):
                in_code = place.instruction - address
                assert 0 < in_code < length + 256, "the code object has its instructions at its end"
        assert not any(of.is_broken for of in frames), minor
    answers_of(job.process for job in jobs.values())
    for minor, frames, codes_of_job in zip(jobs, frames_of(list(jobs.values())), codes, strict=True):
        ((deep, _),) = frames.most_common(1)
        assert (len(deep.places), deep.is_cut) == (PLACES, True), minor
        assert deep.places[0].code == codes_of_job[0][0], minor


def frames_of(jobs: Sequence[Job]) -> list[Counter[Frames]]:
    """How often each job was in which Python frames since the last call."""
    counts: list[Counter[Frames]] = [Counter() for _ in jobs]
    for job, stacks, frames_of_job in zip(jobs, stacks_of(jobs), counts, strict=True):
        for sampled, count in stacks.items():
            if frames := job.tables.samples.frames(sampled.stack):
                frames_of_job[frames] += count.samples
    return counts


@pytest.mark.parametrize("minor", MINORS)
def test_the_python_frames_of_waits_are_found(loadable: None, standin: Standin, minor: int) -> None:
    with training(python_of(minor), WAITING_JOB, str(standin.cudart)) as job:
        code = int(job.process.ask())
        (waits,) = waits_in([job], [code])
        assert {of.state for of, _ in waits} == {ThreadState.TIMER}
        assert sum(count.samples for _, count in waits) == 3
        waited = sum(count.ns for _, count in waits) / 1e9
        assert 0.29 < waited < 0.9, "a busy machine wakes a thread late"
        (waits,) = waits_in([job], [code])
        waited = sum(count.ns for _, count in waits) / 1e9
        assert waited > 250 * 0.001
        assert sum(count.samples for _, count in waits) <= 200 * waited * 1.5 + 21, "at most 200 stacks a second"


def waits_in(jobs: Sequence[Job], codes: Iterable[int]) -> list[list[tuple[SampledStack, StackCount]]]:
    """The waits of each job until its next line, with this code in the innermost frame."""
    stacks_of(jobs)
    answers_of(job.process for job in jobs)
    return [
        [
            (of, count)
            for of, count in stacks.items()
            if not of.code and (frames := job.tables.samples.frames(of.stack)) and frames.places[0].code == code
        ]
        for job, stacks, code in zip(jobs, stacks_of(jobs), codes, strict=True)
    ]


def test_a_stack_of_a_wait_is_read_after_off_cpu(loadable: None, standin: Standin) -> None:
    config = EbpfConfig(stacks=StacksConfig.model_validate({"off_cpu": "10ms"}), max_overhead=0)
    with training(sys.executable, WAITING_JOB, str(standin.cudart), config=config) as job:
        code = int(job.process.ask())
        job.process.ask()
        (waits,) = waits_in([job], [code])
        waited = sum(count.ns for _, count in waits) / 1e9
        assert waited > 0.24, "short waits are added up"
        assert sum(count.samples for _, count in waits) * 0.01 <= waited


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
        slept, before = measured(lambda: sleeps(job, "sleep"), lambda both: is_close(*both), attempts=10)
        assert is_close(slept, before)
        slept, before = measured(lambda: sleeps(job, "loop"), lambda both: is_close(*both), attempts=10)
        assert is_close(slept, before)
        first, last = snapshots_around(job, "read")
        piped = last.times[ThreadState.PIPE] - first.times[ThreadState.PIPE]
        assert piped > 0.2e9
        assert is_close(piped, last.after_backward - first.after_backward)


def sleeps(job: Job, order: str) -> tuple[int, int]:
    """The ns that a job sleeps in some steps, and the part of them before the backward pass."""
    (first, last), timer = snapshots_around(job, order), WAITS.index(Activity.TIMER)
    before = last.before_backward[timer] - first.before_backward[timer]
    before += last.before_backward[-1] - first.before_backward[-1]  # settled late, as of epoll
    return last.times[ThreadState.TIMER] - first.times[ThreadState.TIMER], before * 1000


def is_close(whole: int, part: int) -> bool:
    return 0.9 * whole < part < 1.1 * whole


def test_samples_show_on_which_side_of_the_backward_pass_a_thread_computes(loadable: None, python: str) -> None:
    with training(python, QUEUE_JOB) as job:
        before, after = sampled_sides(job, "batch")
        assert before > 20
        assert after < before / 10
        before, after = sampled_sides(job, "report")
        assert after > 20
        assert before < after / 10


def sampled_sides(job: Job, order: str) -> tuple[int, int]:
    """The samples of some steps in code before and after the backward pass."""
    first, last = snapshots_around(job, order)
    return last.sampled_before - first.sampled_before, last.sampled_after - first.sampled_after


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
        assert job.process.ask(order) == "trained"
    spans = [span for span in spans_of(job.watch.read(), job.process.pid) if span.name == "backward"]
    first, *_, last = (snapshots_of(span)[1] for span in sorted(spans, key=lambda span: span.end_time_unix_nano))
    return first, last


def test_nothing_is_sampled_without_a_frequency(loadable: None, standin: Standin) -> None:
    with training(sys.executable, JOB, "0.3", str(standin.cudart), config=EbpfConfig(sampler_frequency=0)) as job:
        job.process.ask()
        assert "zernel.samples" not in metrics_of(job.watch.read())
