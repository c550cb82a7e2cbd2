"""The snapshots of intervals, with their times since 1970."""

from collections.abc import Sequence
from statistics import median_low

from otel_zernel_libraries.training.ledger import TimedSnapshot, read_snapshots
from otel_zernel_processors.phases.intake.intervals import ThreadInterval


def snapshots_in(intervals: Sequence[ThreadInterval]) -> list[TimedSnapshot]:
    """The snapshots of intervals of one thread, in the order of the intervals.

    All have one clock. Its distance to Unix time is the median over the edges of the spans: a snapshot is taken some us
    from its edge, and that of a wait of c10d may be far from it.
    """
    joined = b"".join([interval.snapshots for interval in intervals])
    if not joined:
        return []
    snapshots = read_snapshots(joined)
    edges = (edge for interval in intervals if interval.snapshots for edge in (interval.start, interval.end))
    distance = median_low(edge - snapshot.time for edge, snapshot in zip(edges, snapshots, strict=True))
    return [(snapshot.time + distance, snapshot) for snapshot in snapshots]
