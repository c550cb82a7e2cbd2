"""The line that makes a training job slow is the first one of its stacks, whatever it does and wherever in the loop."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.stacks import STACKS, CodeLine, StackTime
from otel_zernel_receivers.ebpf.config import EbpfConfig, StacksConfig
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import Watch, require_ebpf
from tests.waiting import measured

JOB = str(Path(__file__).with_name("planted_job.py"))
CONFIG = EbpfConfig(sampler_frequency=199, stacks=StacksConfig(), max_overhead=0)
SHARE = 0.8
"""So much of the planted time, at least, is in the planted line."""
WAITS_FOR_THE_TEST = ("say", "wait_for_the_receiver")
MARKS = {
    "load": ("data_loading", True),
    "forward": ("data_loading", False),
    "backward": ("backward", True),
    "optimizer": ("optimizer", True),
    "between": ("zero_grad", False),
}
"""The latest mark of the loop's thread at each position."""
ACTIVITIES = {
    "pure_python": "python",
    "numpy": "native",
    "sqlite": "native",
    "json_logging": "python",
    "deep_copy": "python",
    "native": "native",
    "pil": "native",
    "pandas": "native",
    "tokenizer": "native",
    "sleep": "timer",
    "lock": "lock",
    "item": "gpu_wait",
    "request": "socket",
}
OFTEN = [
    *product(("pure_python", "sleep"), MARKS),
    *product(("numpy", "item"), ("forward", "between")),
    *product(("native", "lock", "request"), ("load", "forward")),
    ("sqlite", "load"),
    ("sqlite", "backward"),
    ("json_logging", "forward"),
    ("json_logging", "between"),
    ("deep_copy", "load"),
    ("deep_copy", "optimizer"),
    ("native", "pool"),
    *product(("pure_python", "numpy", "sleep"), ("worker",)),
]
"""The others are for `make soak`."""
RARELY = [pair for pair in product(ACTIVITIES, [*MARKS, "worker"]) if pair not in [*OFTEN, ("item", "worker")]]
RARELY.append(("pure_python", "spawned"))
"""A worker calls no CUDA. One that is spawned takes seconds to begin."""


class Seen(NamedTuple):
    """A stack with its lines, the innermost first."""

    time: StackTime
    lines: tuple[CodeLine, ...]


class Found(NamedTuple):
    """What is found of a planted line."""

    is_first: bool
    has_its_time: bool
    activity: str
    """That of most of its time."""
    marks: set[tuple[str, bool]]


@dataclass
class Job:
    """A job that trains with the plants that it is given."""

    process: Talker
    watch: Watch

    def train(self, plant: str, position: str) -> tuple[CodeLine, float, list[Seen]]:
        """The planted line, its seconds, and the stacks meanwhile."""
        self.stacks()
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(self.process.ask, f"{plant} {position}")
            while not answer.done():
                if position == "spawned":
                    self.watch.attach()
                self.watch.read()
                wait([answer], 0.1)
        planted = json.loads(answer.result())
        if not planted:
            pytest.skip(f"the library of {plant} is not installed")
        *line, seconds = planted
        file, function, number = line
        return CodeLine(file, function, number), seconds, self.stacks()

    def stacks(self) -> list[Seen]:
        """Those since the last call."""
        logs = self.watch.read(is_last=True).logs
        self.watch.taken()
        found = []
        for resource in logs.resource_logs:
            for record in resource.scope_logs[0].log_records:
                if record.event_name == semconv.PROCESS_STACKS:
                    read = STACKS.read(record.body)
                    found += [Seen(time, tuple(read.lines[line] for line in time.lines)) for time in read.stacks]
        return found


@pytest.fixture(scope="module")
def job(standin: Standin, python: str) -> Iterator[Job]:
    with running(python, JOB, str(standin.cudart)) as job:
        yield job


@contextmanager
def running(*command: str) -> Iterator[Job]:
    require_ebpf()
    with Watch(CONFIG) as watch, talking(*command, first="training") as process:
        watch.attach()
        assert process.ask("go on") == "training"
        watch.read()
        yield Job(process, watch)


def seconds_by_line(stacks: list[Seen], file: str) -> dict[int, float]:
    """The seconds of each line of the job's own file that is the deepest one of its stack."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for time, lines in stacks:
        own = next((line for line in lines if line.file == file), None)
        if own and own.function not in WAITS_FOR_THE_TEST:
            seconds[own.line] += time.seconds
    return seconds


@pytest.mark.parametrize(
    ("plant", "position"), [*OFTEN, *(pytest.param(*pair, marks=pytest.mark.soak) for pair in RARELY)]
)
def test_the_planted_line_is_the_first(job: Job, plant: str, position: str) -> None:
    """A busy machine finds a worker late, and counts nothing of it before that."""
    expected = Found(True, True, ACTIVITIES[plant], {MARKS.get(position, ("", False))})
    assert measured(lambda: found_in(job, plant, position), lambda found: found == expected) == expected


def test_the_planted_line_of_a_container_is_the_first(standin: Standin, python: str) -> None:
    """A container has PID and mount namespaces of its own."""
    require_ebpf()
    namespaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*namespaces, "true"], check=False, capture_output=True).returncode:
        pytest.skip("namespaces need CAP_SYS_ADMIN")
    with running(*namespaces, python, JOB, str(standin.cudart)) as job:
        test_the_planted_line_is_the_first(job, "sleep", "forward")


def found_in(job: Job, plant: str, position: str) -> Found:
    """What the stacks of a training say of the planted line."""
    planted, seconds, stacks = job.train(plant, position)
    is_in = position in MARKS, position in ("worker", "spawned")
    of_thread = [seen for seen in stacks if (bool(seen.time.thread), bool(seen.time.worker)) == is_in]
    by_line = seconds_by_line(of_thread, planted.file)
    of_line = [
        seen for seen in stacks if planted.line in {line.line for line in seen.lines if line.file == planted.file}
    ]
    activities: defaultdict[str, float] = defaultdict(float)
    for time, _ in of_line:
        activities[time.activity] += time.seconds
    return Found(
        max(by_line, key=by_line.__getitem__, default=0) == planted.line,
        by_line.get(planted.line, 0.0) >= SHARE * seconds,
        max(activities, key=activities.__getitem__, default=""),
        {(time.mark, time.is_inside) for time, _ in of_line},
    )
