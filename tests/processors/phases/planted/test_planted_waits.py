"""Waits that a real training loop makes in known places are found there, and what the thread waited for is right."""

import subprocess
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.training.runs import Job, Run, watched
from otel_zernel_libraries.training.ledger import Activity, Position, Segment
from otel_zernel_processors.phases.intake.inputs import CPU_TAKEN_TIME, THROTTLED_TIME, input_points
from otel_zernel_processors.phases.intake.intervals import read_spans
from otel_zernel_processors.phases.scopes.timeline import Timeline
from tests.processors.phases.training import MS
from tests.receivers.ebpf.jobs.pytorch.torches import OLD, python_of
from tests.receivers.ebpf.watching import require_ebpf

PROGRAM = Path(__file__).with_name("waits.py")
PAGE = Path(__file__).parents[4] / "docs/phases.md"
PLACES = (Position.LOAD, Position.FORWARD, Position.AFTER_STEP)
SWAP = 64 << 20
CPU_GROUPS = Path("/sys/fs/cgroup/cpu/tasks")
KINDS = {
    "loader": frozenset({"data_loading", "backward", "operators"}),
    "by hand": frozenset({"backward", "operators"}),
}
"""The kinds of spans by which the receiver shows that it sees the loop."""
WAITS = {
    "cold_file": (Activity.FILE,),
    "cold_map": (Activity.FAULT,),
    "swap": (Activity.SWAP,),
    "shared_swap": (Activity.SWAP,),
    "receive": (Activity.SOCKET,),
    "resolve": (Activity.SOCKET,),
    "pipe": (Activity.PIPE,),
    "full_pipe": (Activity.PIPE,),
    "queue": (Activity.LOCK,),
    "lock": (Activity.LOCK,),
    "lock_file": (Activity.LOCK,),
    "sleep": (Activity.TIMER,),
    "timer": (Activity.TIMER,),
    "event_loop": (Activity.TIMER,),
    "fsync": (Activity.FILE,),
    "database": (Activity.FILE,),
    "command": (Activity.CHILD,),
    "output": (Activity.PIPE, Activity.CHILD),
    "child": (Activity.CHILD,),
    "event": (Activity.UNKNOWN,),
    "python": (Activity.CPU_WAIT,),
    "neighbour": (Activity.CPU_WAIT,),
    "interpreter": (Activity.GIL,),
    "threads": (Activity.LOCK,),
}
"""What the thread waits for. For a command, this is its output, and then its end."""
OF_SWAP = ("swap", "shared_swap")
LIKE_LOADS = frozenset({"queue"})
"""Without a DataLoader, what is taken from a queue after a step counts as a batch."""
BY_SAMPLES = frozenset({"cold_map", "swap", "shared_swap", "python", "neighbour", "interpreter", "threads"})
"""Only samples of the thread on a CPU show on which side of the step these are. On a busy machine, the plants are too
rare to have enough."""
SAMPLES = 499
"""A second."""
LEAST = 0.98
_ON_CPU = (Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE)


class Score(NamedTuple):
    """What was found of a wait in one place. Times are in ns."""

    lasted: int
    in_place: int
    """The time with the right position."""
    is_right: int
    """The time with the right activity."""
    activities: dict[Activity, int]
    """Of the segments around it."""

    @property
    def is_good(self) -> bool:
        return min(self.in_place, self.is_right) >= LEAST * self.lasted


@pytest.fixture
def swap_file(tmp_path: Path) -> Iterator[str]:
    """A file for swapped pages; the reason why there is none, or an empty string."""
    path = tmp_path / "swap"
    path.write_bytes(bytes(SWAP))
    path.chmod(0o600)
    for command in ("mkswap", "swapon"):
        tried = subprocess.run([command, str(path)], check=False, capture_output=True, text=True)
        if tried.returncode:
            yield tried.stderr.strip()
            return
    yield ""
    subprocess.run(["swapoff", str(path)], check=True)


@pytest.mark.timeout(300)
def test_a_wait_is_found_in_its_place() -> None:
    """Each wait is in one of the places. Those for `fsync` and swapped pages are left to soak tests: on some disks, a
    tenth of them counts as Python."""
    waits = [wait for wait in WAITS if wait not in ("fsync", *OF_SWAP)]
    check("loader", [f"{wait}:{PLACES[at % len(PLACES)]}" for at, wait in enumerate(waits)])


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("loop", ["loader", "by hand"])
def test_every_wait_is_found_in_every_place(loop: str, swap_file: str) -> None:
    """Without a loader, those are not whose place no fact shows: docs/phases.md has their number."""
    waits = _possible(swap_file)
    plants = [f"{wait}:{place}" for place in PLACES for wait in waits]
    if loop == "loader":
        check(loop, plants)
    else:
        check(loop, plants, hidden_places(waits), by_samples(waits))


def test_the_number_of_hidden_places_is_that_of_the_documentation() -> None:
    assert len(WAITS) == 24
    hidden, unsure = hidden_places(list(WAITS)), by_samples(list(WAITS))
    right = len(WAITS) * len(PLACES) - len(hidden) - len(unsure)
    page = PAGE.read_text("utf-8")
    assert f"Without one, {right} are" in page
    assert f"{len(unsure)} others" in page


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_quota_is_found_in_the_waits_for_a_cpu() -> None:
    """On a busy machine a reading only bounds it: the CPU may run others while the program is stopped, or idle."""
    if not CPU_GROUPS.exists():
        pytest.skip("no cgroup v1 for CPUs")
    plants = [f"quota:{place}" for place in PLACES]
    run = watched_waits("loader", plants)
    found = scores(run)
    stopped, queued = (sum(spent[at] for spent in run[1][0]["spent"]) for at in (2, 1))
    assert all(found[plant].is_good for plant in plants), found
    assert 0.9 * stopped <= sum(found[plant].activities[Activity.THROTTLED] for plant in plants) <= 1.02 * queued


def _possible(swap_problem: str) -> list[str]:
    """The waits that this machine can make."""
    if swap_problem:
        warnings.warn(f"skipped swap: {swap_problem}", stacklevel=1)
    return [wait for wait in WAITS if wait not in OF_SWAP or not swap_problem]


def hidden_places(waits: Sequence[str]) -> set[str]:
    """The pairs of a wait and its place that no fact shows without a loader."""
    return {f"{wait}:{Position.AFTER_STEP}" for wait in waits if wait in LIKE_LOADS}


def by_samples(waits: Sequence[str]) -> set[str]:
    """The pairs of a wait and its place that only samples show without a loader."""
    return {f"{wait}:{place}" for place in (PLACES[0], PLACES[-1]) for wait in waits if wait in BY_SAMPLES}


def check(
    loop: str, plants: Sequence[str], hidden: Collection[str] = (), unsure: Collection[str] = frozenset()
) -> None:
    """Runs the program, and up to three times more those of the waits that a busy machine disturbed. The hidden ones
    must be wrong: else docs/phases.md is. Half of the unsure ones must be right."""
    wrong: dict[str, Score] = {}
    for _ in range(4):
        found = scores(watched_waits(loop, plants))
        wrong = {plant: score for plant, score in found.items() if score.is_good == (plant in hidden)}
        plants = list(wrong)
        if not wrong:
            break
    left = {plant: wrong.pop(plant) for plant in unsure if plant in wrong}
    assert wrong == {}
    assert len(left) * 2 <= len(unsure), left


def watched_waits(loop: str, plants: Sequence[str]) -> Run:
    require_ebpf()
    command = [python_of(OLD), str(PROGRAM), loop, ",".join(plants)]
    return watched(Job(command, intervals=KINDS[loop], samples=SAMPLES))


def segments_in(run: Run) -> list[Segment]:
    """The segments of the program."""
    batches, (truth,) = run
    timeline = Timeline(MS // 2, 1_000_000)
    for batch in batches:
        for point in input_points(batch.metrics) if batch.metrics else ():
            if point.name in (THROTTLED_TIME, CPU_TAKEN_TIME) and point.pid == truth["pid"]:
                timeline.add_time(point)
        for resource in batch.spans.resource_spans if batch.spans else ():
            pids = (
                attribute.value.int_value
                for attribute in resource.resource.attributes
                if attribute.key == "process.pid"
            )
            for scope in resource.scope_spans if truth["pid"] in pids else ():
                for interval in read_spans(scope.spans).intervals:
                    timeline.add(interval)
    return [segment for closed in timeline.end() for segment in closed.attribution.segments]


def scores(run: Run) -> dict[str, Score]:
    """By "WAIT:PLACE"."""
    segments, (truth,) = segments_in(run), run[1]
    true: dict[str, Counter[str]] = {}
    found: dict[str, Counter[Activity]] = {}
    at = 0
    for (mark, start, end), (on_cpu, queued, _) in zip(truth["marks"], truth["spent"], strict=True):
        blocked = max(end - start - on_cpu - queued, 0)
        of_mark, of_segments = true.setdefault(mark, Counter()), found.setdefault(mark, Counter())
        of_mark.update(lasted=end - start, on_cpu=on_cpu, queued=queued, blocked=blocked)
        position = mark.split(":")[1]
        while segments[at].end <= start:
            at += 1
        for segment in segments[at:]:
            if segment.start >= end:
                break
            if segment.position == position:
                both = min(end, segment.end) - max(start, segment.start)
                of_mark["in_place"] += both
                of_segments.update({moment.activity: min(spent, both) for moment, spent in segment.spent})
    return {mark: _score(mark, true[mark], found[mark]) for mark in true}


def _score(mark: str, true: Counter[str], found: Counter[Activity]) -> Score:
    """A thread that has waited, and then waits for a CPU, may count as waiting."""
    of_wait = sum(found[activity] for activity in WAITS.get(mark.split(":")[0], ()))
    blocked = min(of_wait, true["blocked"])
    queued = min(of_wait - blocked + found[Activity.CPU_WAIT] + found[Activity.THROTTLED], true["queued"])
    on_cpu = min(sum(found[activity] for activity in _ON_CPU), true["on_cpu"])
    return Score(true["lasted"], true["in_place"], blocked + queued + on_cpu, dict(found))
