"""The snapshots of intervals, with their times since 1970."""

from collections.abc import Iterable
from statistics import median_low

from otel_zernel_libraries.training.ledger import TimedSnapshot
from otel_zernel_processors.phases.intake.intervals import ThreadInterval


def snapshots_in(intervals: Iterable[ThreadInterval]) -> list[TimedSnapshot]:
    """The snapshots of intervals of one thread, in the order of the intervals.

    All have one clock. Its distance to Unix time is the median over the edges of the spans: a snapshot is taken some us
    from its edge, and that of a wait of c10d may be far from it.
    """
    pairs = [(one, one.snapshots) for one in intervals if one.snapshots]
    if not pairs:
        return []
    begins = (one.start - begin.time for one, (begin, _) in pairs)
    distance = median_low([*begins, *(one.end - end.time for one, (_, end) in pairs)])
    return [(snapshot.time + distance, snapshot) for _, both in pairs for snapshot in both]
