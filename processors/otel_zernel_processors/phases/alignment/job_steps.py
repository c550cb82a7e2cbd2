"""Joins the steps of a job's ranks into steps of the job."""

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from otel_zernel_processors.phases.alignment.critical_path import CriticalPath, critical_path
from otel_zernel_processors.phases.alignment.inference import LATEST, Meeting, meetings_of, offset
from otel_zernel_processors.phases.alignment.rank_step import RankStep
from otel_zernel_processors.phases.alignment.sequences import CollectiveNumber

_FEWEST = 3
"""Fewer steps do not show whether numbers agree with times."""
_CHUNK = 256
"""Steps of ranks that take about 1 ms."""
_APART = 0.5
"""Ranks on one host that leave the same collective further apart than this share of a step have not left the same."""


@dataclass(slots=True)
class JobStep:
    """A step of a job: the steps of its ranks that belong together."""

    number: int
    """The number of its first collective; without such numbers, the number of the meeting at the lowest rank."""
    seed: str
    """The text whose hash is the id of its trace."""
    is_counted: bool
    """Whether the ranks are aligned by the numbers of collectives. Then every collector has the same seed."""
    first_rank: int = 0
    """The rank whose collector emits the span of the job's step."""
    ranks: dict[int, RankStep] = field(default_factory=dict)

    @property
    def has_root(self) -> bool:
        """Whether this collector emits the span of the job's step. A late rank does not repeat it."""
        return self.first_rank in self.ranks

    @property
    def critical_path(self) -> CriticalPath | None:
        """The critical path through these ranks; see `critical_path`."""
        return critical_path(self.ranks)


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


_Key = tuple[str, int]
"""The seed and the number of a step of the job."""


class JobSteps:
    """Joins the steps of the ranks of one job.

    Ranks are aligned by the numbers of their collectives if all of them have such numbers, else by time, separately on
    each host. A step is released once all ranks have it. If one is missing, the step waits for one more update.
    """

    def __init__(self, name: str) -> None:
        """`name` identifies the job."""
        self._name = name
        self._waiting: dict[_Key, JobStep] = {}
        self._is_contradicted = False
        """Whether the numbers of collectives contradicted the times when they were last compared."""
        self._recent: dict[int, list[RankStep]] = {}
        self.offsets: dict[int, int] = {}
        """By rank: the number of a meeting of the job minus its number in the process, if aligned by time."""

    def update(
        self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin]
    ) -> Generator[None, None, AlignedSteps]:
        """Adds the new steps of each rank; returns the steps of the job that are complete. Yields often, so that others
        get the event loop."""
        old = set(self._waiting)
        alone: dict[int, list[RankStep]] = defaultdict(list)
        contradicts = _contradicts(steps, origins)
        self._is_contradicted = self._is_contradicted if contradicts is None else contradicts
        keys = self._counted if _are_counted(steps) and not self._is_contradicted else self._inferred
        for position, (rank, step, found) in enumerate(keys(steps, origins), 1):
            if position % _CHUNK == 0:
                yield
            if found:
                self._waiting.setdefault((found.seed, found.number), found).ranks[rank] = step
            else:
                alone[rank].append(step)
        complete = {key for key, step in self._waiting.items() if self._is_whole(step, origins)}
        return AlignedSteps(self._release(old | complete), alone)

    def end(self) -> list[JobStep]:
        """The steps that still wait for a rank."""
        return self._release(set(self._waiting))

    def _release(self, keys: set[_Key]) -> list[JobStep]:
        return sorted((self._waiting.pop(key) for key in keys), key=lambda step: (step.number, step.seed))

    def _counted(
        self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin]
    ) -> Iterator[tuple[int, RankStep, JobStep | None]]:
        self.offsets.clear()
        self._recent.clear()
        for rank, of_rank in steps.items():
            for step in of_rank:
                first = step.collective
                yield rank, step, JobStep(first.sequence, seed_of(first, self._name), True) if first else None

    def _inferred(
        self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin]
    ) -> Iterator[tuple[int, RankStep, JobStep | None]]:
        references = self._align(steps, origins)
        for rank, of_rank in steps.items():
            reference, ahead = references.get(rank), self.offsets.get(rank)
            for step in of_rank:
                if reference is None or ahead is None or not step.meeting:
                    yield rank, step, None
                else:
                    yield rank, step, self._inferred_step(step.meeting + ahead, reference, origins[reference])

    def _inferred_step(self, number: int, reference: int, origin: RankOrigin) -> JobStep:
        return JobStep(number, f"{self._name} {origin.seed} {number}", False, reference)

    def _align(self, steps: Mapping[int, Sequence[RankStep]], origins: Mapping[int, RankOrigin]) -> dict[int, int]:
        """Updates the offsets; returns, by rank, the lowest rank on its host if another rank is aligned with it."""
        meetings = {rank: self._meetings(rank, steps[rank]) for rank in sorted(steps)}
        references: dict[int, int] = {}
        self.offsets = {}
        for ranks in _by_host(origins, meetings):
            reference, *others = ranks
            offsets = {rank: offset(meetings[reference], meetings[rank]) for rank in others}
            aligned = {rank: found for rank, found in offsets.items() if found is not None}
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
            return len(step.ranks) >= len(origins)
        hosts = {origins[rank].host for rank in step.ranks if rank in origins}
        expected = [rank for rank in self.offsets if rank in origins and origins[rank].host in hosts]
        return len(step.ranks) >= len(expected)


def seed_of(first: CollectiveNumber, job: str) -> str:
    """The text whose hash is the id of the trace of the step with this collective. Its communicator identifies the job
    and this run of it; the name of the job is the second best."""
    return f"zernel step {first.communicator or job} {first.size} {first.sequence}"


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
    found = [
        _agree(steps[reference][-LATEST:], steps[rank][-LATEST:])
        for reference, *others in _by_host(origins, steps)
        for rank in others
    ]
    return False in found or (None if None in found else False)


def _agree(reference: Sequence[RankStep], other: Sequence[RankStep]) -> bool | None:
    """Whether two ranks leave the collectives with the same numbers at about the same time; None if that is unclear."""
    times = {step.collective: step.met for step in reference if step.met and step.collective}
    apart = [abs(step.met - times[step.collective]) for step in other if step.met and step.collective in times]
    if len(apart) < _FEWEST:
        return None
    return median(apart) <= _APART * median(after - before for before, after in pairwise(sorted(times.values())))
