"""One process that is followed: its timeline, its sums, its verdict."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.component import Context
from otel_zernel_processors.phases.config import PhasesConfig, ns
from otel_zernel_processors.phases.emit.durations import StepDurations
from otel_zernel_processors.phases.emit.staleness import Told
from otel_zernel_processors.phases.emit.traces import Sampler
from otel_zernel_processors.phases.intake.inputs import KERNEL, MISSING, NVML, Observation, Scalars, scalars
from otel_zernel_processors.phases.intake.intervals import Mark
from otel_zernel_processors.phases.results.energy import History, Spent
from otel_zernel_processors.phases.results.totals import Account, Tally
from otel_zernel_processors.phases.results.verdict import MARKS, Judge
from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from otel_zernel_processors.phases.signals.rules import SignalReader, Spell

PIECE = 64
"""Marks that are taken at a time: a few tenths of a ms."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process: a pid may come back, but not with the same creation time."""

    host: str
    pid: int
    created: str


class Process:
    """Follows one process from its first span or point to its last."""

    def __init__(self, identity: Identity, resource: Resource, config: PhasesConfig, context: Context) -> None:
        self.identity = identity
        self.resource = deepcopy(resource)  # the batch that it is a part of may be edited
        self.attributes: Scalars = scalars(resource.attributes)
        self.account = Account(round(config.window / config.interval))
        self.tally = Tally()
        """The window's sums, as of the last report."""
        self.durations = StepDurations()
        self.sampler = Sampler(config.traces, str(identity), context.drop) if config.traces else None
        self.judge = Judge(config.verdict)
        self.history = History()
        self.spent: defaultdict[str, Spent] = defaultdict(Spent)
        """What it used of its GPU, by the source of its phases at that time."""
        self.gpu = str(self.attributes.get("zernel.local_rank", ""))
        """The index of its GPU on the host: where its memory was seen, else its local rank; empty if unknown."""
        self.since = self.reported = self.last_seen = 0
        """When (ns) it was first seen, last reported, and last seen."""
        self.ended = 0
        """When (ns) it ended; 0 if that was not told."""
        self.told = Told()
        self.missing: frozenset[str] = frozenset()
        """The marks of PyTorch that its libraries lack."""
        self._config = config
        self._drop: Callable[[int, str], None] = context.drop
        self._timeline = Timeline(ns(config.bridge), config.max_spans, context.drop)
        self._signals = SignalReader(config.signals)

    def belongs_to(self, resource: Resource) -> None:
        """Takes the resource as it is now: a rank becomes known only once the process has joined its job."""
        if resource != self.resource:
            self.resource, self.attributes = deepcopy(resource), scalars(resource.attributes)
            self.gpu = self.gpu or str(self.attributes.get("zernel.local_rank", ""))

    @property
    def doubtful_ns(self) -> int:
        """How much time (ns) was told as phases before it was known that events in it had been lost."""
        return self._timeline.doubtful_ns

    @property
    def is_ml(self) -> bool:
        """Whether it has PyTorch's scopes, or used CUDA or NCCL."""
        return self._timeline.has_scopes or self._signals.is_ml

    def add(self, marks: Iterable[Mark]) -> None:
        """Takes marks; counts those that are too late and those for which there is no room."""
        for mark in marks:
            if mark.end > self.last_seen:
                self._seen(mark.start, mark.end)
            refused = self._timeline.add(mark)
            if refused:
                self._drop(1, refused)

    def lose(self, start: int, end: int) -> None:
        """Notes that events were lost between these times (ns)."""
        self._timeline.lose(start, end)

    def observe(self, seen: Observation, gpu: float) -> Spell | None:
        """Takes a point of the process; returns what was judged by it. `gpu` is the use of its GPU, 0 to 1."""
        self._seen(seen.time, seen.time)
        if seen.name == MISSING:
            named = MARKS & {seen.mark}
            self.missing = self.missing | named if seen.value else self.missing - named
            return None
        if seen.gpu.isdecimal() and seen.name in KERNEL | NVML:
            self.gpu = seen.gpu
        spell = self._signals.read(seen, gpu)
        by_signals = self._config.source == "signals" or not self._timeline.has_loads
        if spell is None or not by_signals or self._config.source == "scopes":
            return None
        self.account.add_time(*spell)
        self.history.add_time(*spell)
        return spell

    def advance(self, until: int) -> Iterator[None]:
        """Closes what is known by `until` (ns), in pieces."""
        while self._timeline.is_behind(until):
            yield from self._count(self._timeline.advance(until, PIECE))
            yield
        yield from self._count(self._timeline.advance(until))

    def end(self) -> Iterator[None]:
        """Closes everything, in pieces: the process has ended."""
        yield from self.advance(self._timeline.last_end)
        yield from self._count(self._timeline.end())

    def _seen(self, start: int, end: int) -> None:
        self.since = self.since or start
        self.last_seen = max(self.last_seen, end)

    def _count(self, steps: Iterable[ClosedStep]) -> Iterator[None]:
        for closed in steps:
            yield from closed.settle()
            self.account.add_step(closed)
            if closed.is_long:
                yield
            self.durations.add(closed.step.kind, closed.step.end - closed.step.start)
            self.history.add(closed.ledger.pieces)
            if self.sampler:
                self.sampler.consider(closed)
