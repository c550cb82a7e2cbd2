"""The collector's state: components report problems, and the `health_check` extension shows them."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from otel_zernel.batch import ItemCount
from otel_zernel.clock import Clock
from otel_zernel.text import spoken_duration, visible, without_secrets

REPEATED: Final = "repeated"
"""The reason to drop items that their sender has repeated. They were counted before, so it is no loss."""

_RECENT = 60.0
"""Seconds after the last refusal in which a receiver counts as held back. Its sender may have gone meanwhile."""


@dataclass(slots=True)
class Outage:
    """The time in which an exporter delivers nothing, although it tries. Times are monotonic, in s."""

    since: float
    """The first failed attempt."""
    last: float
    """The last failed attempt."""
    reason: str
    waiting: Callable[[], ItemCount]
    """The items that the exporter still has to deliver."""

    def lasted(self, now: float) -> float:
        """Seconds from the first failed attempt until now; until the last one if nothing waits for another attempt."""
        return max(0.0, (now if self.waiting().total else self.last) - self.since)

    def sentence(self, now: float) -> str:
        """`has delivered nothing for 3 m: Connection refused; 1,204 metric points are waiting`."""
        waiting = self.waiting()
        rest = f"; {waiting} {waiting.verb} waiting" if waiting.total else ""
        return f"has delivered nothing for {spoken_duration(now - self.since)}: {self.reason}{rest}"


@dataclass(slots=True)
class HeldBack:
    """The time in which the batches of a receiver are refused. Times are monotonic, in s."""

    since: float
    last: float
    """The last refusal."""
    reason: str
    refusals: int = 1

    def sentence(self, now: float) -> str | None:
        """`held back for 3 m: sending queue is full: otlp`. None if its sender has not tried again recently."""
        if now - self.last > _RECENT:
            return None
        return f"held back for {spoken_duration(now - self.since)}: {self.reason}"


class ShownQueue(Protocol):
    """The fill of an exporter's queue, in units of its `sizer`."""

    @property
    def size(self) -> int: ...

    @property
    def capacity(self) -> int: ...


@dataclass(slots=True)
class Health:
    """Whether the collector runs, and the problems that components may recover from by themselves."""

    up_since: float | None = None
    """Unix time in s since which every component runs; None while the collector starts or stops."""

    problems: dict[str, str] = field(default_factory=dict)
    """One sentence for each component with a problem, by path (`receivers::csv`)."""

    absences: set[str] = field(default_factory=set)
    """The paths of those whose problem is only that this machine does not have their device."""

    outages: dict[str, Outage] = field(default_factory=dict)
    """The exporters that deliver nothing, by path."""

    holds: dict[str, HeldBack] = field(default_factory=dict)
    """The receivers that are held back, by path."""

    queues: dict[str, ShownQueue] = field(default_factory=dict)
    """The queues of the exporters that run, by id."""

    dropped: Counter[str] = field(default_factory=Counter)
    """The items that components have dropped, by reason."""

    dropped_by: dict[str, Counter[str]] = field(default_factory=dict)
    """The same items, by the path of the component and the reason."""

    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Held while items are counted: components drop some in threads."""

    def counted(self, component: str, drop: Callable[[int, str], None]) -> Callable[[int, str], None]:
        """The function `drop(count, reason)` of a component, whose counts are added to `dropped`, too."""
        own = self.dropped_by.setdefault(component, Counter())

        def drop_both(count: int, reason: str) -> None:
            with self._counting:
                self.dropped[reason] += count
                own[reason] += count
                drop(count, reason)

        return drop_both

    def lost_by(self, component: str) -> Counter[str]:
        """The items that a component has dropped, by reason, without those that were repeated."""
        dropped = self.dropped_by.get(component, Counter[str]())
        return Counter({reason: count for reason, count in dropped.copy().items() if reason != REPEATED})

    def show_queue(self, exporter: str, queue: ShownQueue) -> Callable[[], None]:
        """Adds the queue of an exporter. The result removes it."""
        self.queues[exporter] = queue

        def remove() -> None:
            if self.queues.get(exporter) is queue:
                del self.queues[exporter]

        return remove

    def report(self, component: str, problem: str | None, *, is_absence: bool = False) -> None:
        """Sets the problem of a component; None clears it. `is_absence`: its device is not there, which is no fault."""
        self.absences.discard(component)
        if is_absence:
            self.absences.add(component)
        if problem is None:
            self.problems.pop(component, None)
        else:
            self.problems[component] = problem

    def forget(self, component: str) -> None:
        """Clears everything about a component, because it starts or ends."""
        self.problems.pop(component, None)
        self.absences.discard(component)
        self.outages.pop(component, None)
        self.holds.pop(component, None)

    def sentences(self, now: float) -> dict[str, str]:
        """The problems at the monotonic time `now`: one text for each component, by path."""
        by_path = dict(self.problems)
        for conditions in (self.outages, self.holds):
            for path, condition in conditions.items():
                if sentence := condition.sentence(now):
                    by_path[path] = f"{by_path[path]}; {sentence}" if path in by_path else sentence
        return by_path

    def longest_outage(self, now: float) -> float:
        """Seconds for which an exporter has delivered nothing, the longest of all; 0 if every exporter delivers."""
        return max((outage.lasted(now) for outage in self.outages.values()), default=0.0)

    def state(self, clock: Clock, unhealthy_after: float = 0.0) -> tuple[bool, dict[str, Any]]:
        """Whether the collector is available, and its state for JSON, with the keys of the OpenTelemetry Collector.

        It is unavailable while it starts or stops, and if an exporter delivers nothing for `unhealthy_after` s (0 for
        never). Texts have no secrets and no control characters.
        """
        now, failing = clock.monotonic(), False
        if unhealthy_after:
            failing = self.longest_outage(now) >= unhealthy_after
        is_available = self.up_since is not None and not failing
        state: dict[str, Any] = {"status": "Server available" if is_available else "Server not available"}
        if self.up_since is not None:
            since = datetime.fromtimestamp(self.up_since, UTC)
            state["upSince"] = since.isoformat().replace("+00:00", "Z")
            state["uptime"] = go_duration(clock.time_ns() / 1e9 - self.up_since)
        if sentences := self.sentences(now):
            state["components"] = {path: visible(without_secrets(text)) for path, text in sentences.items()}
        return is_available, state

    def available(self, now_ns: int) -> None:
        """Every component runs since `now_ns` (wall clock, ns)."""
        self.up_since = now_ns / 1e9

    def unavailable(self) -> None:
        """The collector stops."""
        self.up_since = None


def go_duration(seconds: float) -> str:
    """The duration in the notation of Go, in whole milliseconds: `1h0m2.5s`, `1m2.345s`, `250ms`, `0s`."""
    milliseconds = max(0, round(seconds * 1000))
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return f"{text}{rest / 1000:g}s"
