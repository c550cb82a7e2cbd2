"""Follows whether one job hangs, or one process that trains alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.hangs import JobHang, Rank, hang_of, stop_of
from otel_zernel_processors.phases.emit.hangs import hang_record, hang_span

_QUIET_NS = 30_000_000_000
"""A hang without a mark of any rank is over after so many ns without another sign of it: a thread that wakes up now and
then is seen on the CPU once in a while."""


class HangWatch:
    """The hang of one job, from report to report."""

    def __init__(self) -> None:
        self.hang: JobHang | None = None
        self.stop: JobHang | None = None
        """Somebody has stopped all its ranks, for example with Ctrl-Z: it does not hang."""
        self.has_changed = False
        """Whether the last report began or ended a hang, or a stop."""
        self._marked = 0.0
        self._decided = 0
        """When (ns) it was last found to hang."""

    def report(self, ranks: Sequence[Rank], size: int, resource: Resource, seed: str, now: int) -> Iterator[Batch]:
        """The record of the hang or of the stop at `now` (ns), and the span of a hang that is over. `seed` identifies
        the job."""
        before, decided, was_stopped = self.hang, hang_of(ranks, size), self.stop is not None
        self.stop = stop_of(ranks, size)
        marked = max((rank.signs.marked for rank in ranks), default=0.0)
        has_marks, self._marked = marked > self._marked, marked
        self._decided = now if decided else self._decided
        if decided:
            self.hang = replace(decided, since=min(decided.since, before.since)) if before else decided
            yield hang_record(self.hang, resource, now)
        elif before and (self._is_over(now, has_marks=has_marks) or all(rank.signs.ending for rank in ranks)):
            self.hang = None
            yield hang_span(before, resource, seed, now)
        if self.stop:
            yield hang_record(self.stop, resource, now)
        self.has_changed = (before is None) != (self.hang is None) or was_stopped != (self.stop is not None)

    def _is_over(self, now: int, *, has_marks: bool) -> bool:
        """Whether a hang is over that nothing has shown at `now` (ns)."""
        return has_marks or self.stop is not None or now - self._decided >= _QUIET_NS
