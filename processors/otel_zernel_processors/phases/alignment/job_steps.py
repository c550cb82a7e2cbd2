"""Joins the steps of a job's ranks into steps of the job.

Where the numbers of collectives are unknown, the steps are aligned by time: the ranks leave a collective together, so
their steps end the wait for it at about the same time. Clocks are compared, so this is for ranks on one host.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from otel_zernel_libraries.training.step_spans import CriticalPath
from otel_zernel_processors.phases.alignment.rank_step import COLLECTIVE, CollectiveNumber, RankStep

LATEST = 64
"""Steps of each rank that are compared."""
_FEWEST_MEETINGS = 3
"""Fewer meetings prove nothing."""
_AGREEMENT = 0.8
"""The share of the compared steps that must lead to the same offset."""
_NEAR = 0.25
"""Two ranks met in the same step if the times differ by less than this share of a step."""


class Meeting(NamedTuple):
    """The end of a step's last wait for a collective."""

    time: int
    """ns since 1970."""
    number: int
    """`RankStep.meeting`."""


def meetings_of(steps: Sequence[RankStep]) -> list[Meeting]:
    """The latest meetings in these steps, in order."""
    return [Meeting(step.met, step.meeting) for step in steps if step.met][-LATEST:]


def offset(reference: Sequence[Meeting], other: Sequence[Meeting]) -> int | None:
    """The difference between the numbers of two ranks for the same meeting: the number of `reference` minus that of
    `other`. None if the times leave a doubt."""
    if len(reference) < _FEWEST_MEETINGS or len(other) < _FEWEST_MEETINGS:
        return None
    near = _NEAR * median(after.time - before.time for before, after in pairwise(reference))
    first, last = reference[0].time - near, reference[-1].time + near
    compared = [meeting for meeting in other if first <= meeting.time <= last]
    votes = Counter(
        nearest.number - meeting_.number for meeting_ in compared if (nearest := _near(reference, meeting_, near))
    )
    best, agreeing = next(iter(votes.most_common(1)), (0, 0))
    enough = len(compared) >= _FEWEST_MEETINGS and agreeing >= _AGREEMENT * len(compared)
    return best if enough else None


def _near(reference: Sequence[Meeting], meeting_: Meeting, near: float) -> Meeting | None:
    """The meeting of the reference at the same time; None if there is none."""
    at = bisect_left(reference, (meeting_.time,))
    nearest = min(reference[max(at - 1, 0) : at + 1], key=lambda meeting: abs(meeting.time - meeting_.time))
    return nearest if abs(nearest.time - meeting_.time) <= near else None


_FEWEST = 3
"""Fewer steps do not show whether numbers agree with times."""
_APART = 0.5
"""Ranks on one host that leave the same collective further apart than this share of a step have not left the same."""
_MOMENT_NS = 4_000_000_000
"""Where only the time distinguishes two runs of a job: no run repeats a number within this time of the run before, and
the clocks of its hosts differ by far less."""


@dataclass(slots=True)
class JobStep:
    """A step of a job: the steps of its ranks that belong together."""

    number: int
    """The number of its first collective; without such numbers, the number of the meeting at the lowest rank."""
    since: int
    """The time (ns) of the report with its first rank."""
    seed: str = ""
    """The text whose hash is the id of its trace; set once the step is complete."""
    collective: CollectiveNumber | None = None
    """Its first collective, if the ranks are aligned by such numbers. Then every collector has the same seed."""
    first_rank: int = 0
    """The rank whose collector emits the span of the job's step."""
    ranks: dict[int, RankStep] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        """The parts of one step have the same key."""
        return (
            (self.collective.communicator, self.collective.size, self.number)
            if self.collective
            else (self.seed, 0, self.number)
        )

    @property
    def is_counted(self) -> bool:
        """Whether the ranks are aligned by the numbers of collectives."""
        return self.collective is not None

    @property
    def has_root(self) -> bool:
        """Whether this collector emits the span of the job's step. A late rank does not repeat it."""
        return self.first_rank in self.ranks

    @property
    def critical_path(self) -> CriticalPath | None:
        """The rank for which the others waited, and its phases. None if the phases of a rank are not known from meeting
        to meeting.

        The ranks of a job leave the last collective of a step together. So a step of the job lasts from one meeting to
        the next, and all ranks but the last one to arrive wait in between. The path runs through the rank that waits
        least, with the load of the step's batch, which the process itself counts as the end of the step before.
        """
        if not self.ranks or not all(step.path for step in self.ranks.values()):
            return None
        last = min(sorted(self.ranks), key=lambda rank: self.ranks[rank].path.get(COLLECTIVE, 0))
        return CriticalPath(last, {phase: spent for phase, spent in self.ranks[last].path.items() if spent})


class RankOrigin(NamedTuple):
    """The process that is a rank."""

    host: str
    seed: str
    """`ProcessIdentity.seed`."""


class AlignedSteps(NamedTuple):
    """The result of an alignment."""

    steps: list[JobStep]
    """In the order of their numbers."""
    alone: dict[int, list[RankStep]]
    """By rank: the steps that could not be aligned."""


class JobSteps:
    """Joins the steps of the ranks of one run of a job.

    Ranks are aligned by the numbers of their collectives if all of them have such numbers, else by time, separately on
    each host. A step is released once all ranks have it. If one is missing, the step waits for the next report.
    """

    def __init__(self, name: str) -> None:
        """`name` identifies the job."""
        self._name = name
        self.run = ""
        """Identifies the run of the job, if that is known. It must not change once `has_ids`."""
        self.has_ids = False
        """Whether `run` is part of the id of a released step: a rank that begins late has the same ids."""
        self.size = 1
        """The number of the job's ranks, also of those at other collectors."""
        self._waiting: dict[tuple[str, int, int], JobStep] = {}
        """By `JobStep.key`."""
        self._is_contradicted = False
        """Whether the numbers of collectives contradicted the times when they were last compared."""
        self._recent: dict[int, list[RankStep]] = {}
        self.offsets: dict[int, int] = {}
        """By rank: the number of a meeting of the job minus its number in the process, if aligned by time."""

    def update(
        self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin], now: int
    ) -> AlignedSteps:
        """Adds the new steps of some ranks up to the report at `now` (ns); returns the steps of the job that are
        complete. `origins` are those of all ranks."""
        alone: dict[int, list[RankStep]] = defaultdict(list)
        contradicts = _contradicts(steps, origins)
        self._is_contradicted = self._is_contradicted if contradicts is None else contradicts
        described = self._counted if _are_counted(steps) and not self._is_contradicted else self._inferred
        for rank, step, of_job in described(steps, origins, now):
            if of_job:
                self._waiting.setdefault(of_job.key, of_job).ranks[rank] = step
            else:
                alone[rank].append(step)
        complete = [key for key, step in self._waiting.items() if step.since < now or self._is_whole(step, origins)]
        return AlignedSteps(self._release(complete), alone)

    def end(self) -> list[JobStep]:
        """The steps that still wait for a rank."""
        return self._release(list(self._waiting))

    def _release(self, keys: Iterable[tuple[str, int, int]]) -> list[JobStep]:
        released = [self._waiting.pop(key) for key in keys]
        for step in released:
            step.seed = step.seed or self._seed(step)
        return sorted(released, key=lambda step: (step.number, step.seed))

    def _seed(self, step: JobStep) -> str:
        if not step.collective:
            return ""
        self.has_ids = True
        lowest = step.ranks[min(step.ranks)]
        return seed_of(lowest.met or lowest.end, step.collective, self._name, self.run)

    def _counted(
        self, steps: Mapping[int, Sequence[RankStep]], _origins: Mapping[int, RankOrigin], now: int
    ) -> Iterator[tuple[int, RankStep, JobStep | None]]:
        for rank, of_rank in steps.items():
            self.offsets.pop(rank, None)
            self._recent.pop(rank, None)
            for step in of_rank:
                first = step.collective
                yield rank, step, JobStep(first.sequence, now, collective=first) if first else None

    def _inferred(
        self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin], now: int
    ) -> Iterator[tuple[int, RankStep, JobStep | None]]:
        references = self._align(steps, origins)
        for rank, of_rank in steps.items():
            reference, ahead = references.get(rank), self.offsets.get(rank)
            for step in of_rank:
                if reference is None or ahead is None or not step.meeting:
                    yield rank, step, None
                else:
                    number = step.meeting + ahead
                    seed = f"{self._name} {origins[reference].seed} {number}"
                    yield rank, step, JobStep(number, now, seed, first_rank=reference)

    def _align(self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin]) -> dict[int, int]:
        """Updates the offsets; returns, by rank, the lowest rank on its host if another rank is aligned with it."""
        meetings = {rank: self._meetings(rank, steps[rank]) for rank in sorted(steps)}
        references: dict[int, int] = {}
        self.offsets = {rank: ahead for rank, ahead in self.offsets.items() if rank not in steps}
        for ranks in _by_host(origins, meetings):
            reference, *others = ranks
            offsets = {rank: offset(meetings[reference], meetings[rank]) for rank in others}
            aligned = {rank: offset for rank, offset in offsets.items() if offset is not None}
            if aligned:
                self.offsets |= {reference: 0, **aligned}
                references |= dict.fromkeys((reference, *aligned), reference)
        return references

    def _meetings(self, rank: int, steps: Sequence[RankStep]) -> list[Meeting]:
        """The latest meetings of a rank. Steps of a new process replace those of the one before."""
        before = self._recent.get(rank, [])
        if steps and before and steps[0].number <= before[-1].number:
            before = []
        self._recent[rank] = [step for step in (*before, *steps) if step.met][-LATEST:]
        return meetings_of(self._recent[rank])

    def _is_whole(self, step: JobStep, origins: Mapping[int, RankOrigin]) -> bool:
        """Whether all ranks have a step; if aligned by time, all aligned ranks on its host."""
        if step.is_counted:
            return len(step.ranks) >= self.size
        hosts = {origins[rank].host for rank in step.ranks if rank in origins}
        expected = [rank for rank in self.offsets if rank in origins and origins[rank].host in hosts]
        return len(step.ranks) >= len(expected)


def seed_of(left: int, first: CollectiveNumber, job: str, run: str) -> str:
    """The text whose hash is the id of the trace of the step with this collective.

    `run` identifies the run of the job. If it is empty, the communicator does. Without the communicator's id only the
    time distinguishes two runs whose numbers both begin at 1: when (ns) the ranks `left` the step's collectives.
    """
    if run:
        return f"zernel step {first.communicator or job} {run} {first.size} {first.sequence}"
    if first.communicator:
        return f"zernel step {first.communicator} {first.size} {first.sequence}"
    return f"zernel step {job} {left // _MOMENT_NS} {first.size} {first.sequence}"


def _by_host(origins: Mapping[int, RankOrigin], ranks: Mapping[int, object]) -> Iterator[list[int]]:
    """The ranks on each host, in order."""
    hosts: defaultdict[str, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        hosts[origins[rank].host].append(rank)
    yield from hosts.values()


def _are_counted(steps: Mapping[int, Sequence[RankStep]]) -> bool:
    """Whether all ranks that meet have numbers of collectives."""
    some = [of_rank for of_rank in steps.values() if any(step.met or step.collective for step in of_rank)]
    return bool(some) and all(any(step.collective for step in of_rank) for of_rank in some)


def _contradicts(steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin]) -> bool | None:
    """Whether numbers of collectives contradict the times on a host; None if too few are known."""
    agrees = [
        _agree(steps[reference][-LATEST:], steps[rank][-LATEST:])
        for reference, *others in _by_host(origins, steps)
        for rank in others
    ]
    return False in agrees or (None if None in agrees or not agrees else False)


def _agree(reference: Sequence[RankStep], other: Sequence[RankStep]) -> bool | None:
    """Whether two ranks leave the collectives with the same numbers at about the same time; None if that is unclear."""
    times = {step.collective: step.met for step in reference if step.met and step.collective}
    apart = [abs(step.met - times[step.collective]) for step in other if step.met and step.collective in times]
    if len(apart) < _FEWEST:
        return None
    return median(apart) <= _APART * median(after - before for before, after in pairwise(sorted(times.values())))
