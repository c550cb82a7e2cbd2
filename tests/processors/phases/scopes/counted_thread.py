"""A thread whose spans have snapshots: what it does between two marks is chosen. Times are in ms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from otel_zernel_libraries.training.ledger import Activity, Position, Snapshot, packed_snapshots
from otel_zernel_processors.phases.intake.intervals import Operators, ThreadInterval
from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from tests.libraries.training.ledger.made_snapshots import NOTHING, after
from tests.processors.phases.training import MS, START


@dataclass
class CountedThread:
    """Its monotonic clock begins at START."""

    snapshot: Snapshot = NOTHING
    intervals: list[ThreadInterval] = field(default_factory=list)

    def spend(
        self, on_cpu: float = 0, waits: Mapping[str, float] = MappingProxyType({}), *, before: float = 0, **counted: int
    ) -> None:
        """Spends time on a CPU and in waits, by activity. `before` is the part of the waits in code before the backward
        pass, 0 to 1."""
        states = {Activity(name): round(lasts * MS) for name, lasts in waits.items()}
        self.snapshot = after(self.snapshot, round(on_cpu * MS), waits=states, before=before, **counted)

    def scope(
        self,
        kind: str,
        lasts: float,
        waits: Mapping[str, float] = MappingProxyType({}),
        *,
        name: str = "",
        is_open: bool = True,
        count: int = 20,
        is_loss: bool = False,
        number: int = 1,
        **counted: int,
    ) -> None:
        """Spends time on a CPU and in waits in a span of the thread with this number. A run of operators has `count`
        operators."""
        begin = self.snapshot
        is_counted = kind in ("forward", "inference", "update", "in_place")
        self.spend(lasts, waits, operators=count if is_counted else 0, **counted)
        is_run = is_counted or kind in ("noise", "batch")
        operators = Operators(count, is_open=is_open, is_loss=is_loss) if is_run else None
        self.add(kind, begin, name=name, operators=operators, number=number)

    def add(
        self, kind: str, begin: Snapshot, *, name: str = "", operators: Operators | None = None, number: int = 1
    ) -> None:
        """A span from a snapshot to now. `number` is that of its thread."""
        (snapshots,) = packed_snapshots([begin.to_bytes() + self.snapshot.to_bytes()])
        start, end = START + begin.time, START + self.snapshot.time
        interval = ThreadInterval(end, start, number, kind, name or kind, operators=operators, snapshots=snapshots)
        self.intervals.append(interval)

    def train(self) -> None:
        """A forward pass of 10 ms, a backward pass of 12 ms, and an optimizer of 4 ms."""
        self.scope("forward", 10)
        self.scope("backward", 12)
        self.scope("optimizer", 4)

    def closed(self, losses: tuple[tuple[int, int], ...] = ()) -> list[ClosedStep]:
        """The steps. Events are lost between these times, in ms."""
        timeline = Timeline(MS // 2, 10_000)
        for interval in self.intervals:
            assert timeline.add(interval) is None
        for start, end in losses:
            timeline.add_loss(START + start * MS, START + end * MS)
        return list(timeline.end())


def ledger_of(steps: list[ClosedStep]) -> dict[tuple[Position, Activity], float]:
    """The time (ms) by position and activity."""
    spent: dict[tuple[Position, Activity], float] = {}
    for step in steps:
        for segment in step.attribution.segments:
            for moment, lasted in segment.spent:
                at = moment.position, moment.activity
                spent[at] = spent.get(at, 0) + lasted / MS
    return spent
