"""The ledger of a training thread: where in the loop each moment was, and what the thread did.

The five phases are a view of it, with a fixed table.
"""

from otel_zernel_libraries.training.ledger.clock import ThreadClock, TimedSnapshot
from otel_zernel_libraries.training.ledger.moments import (
    MOMENTS,
    Activity,
    Moment,
    Phase,
    Position,
    detail_of,
    phase_at,
    phase_of,
)
from otel_zernel_libraries.training.ledger.segments import Segment, StepEvent, Work, collective_event
from otel_zernel_libraries.training.ledger.snapshots import (
    STATES,
    Snapshot,
    joined_snapshots,
    packed_snapshots,
    read_snapshots,
    unpacked_snapshots,
)
from otel_zernel_libraries.training.ledger.thread_samples import ThreadSamples

__all__ = [
    "MOMENTS",
    "STATES",
    "Activity",
    "Moment",
    "Phase",
    "Position",
    "Segment",
    "Snapshot",
    "StepEvent",
    "ThreadClock",
    "ThreadSamples",
    "TimedSnapshot",
    "Work",
    "collective_event",
    "detail_of",
    "joined_snapshots",
    "packed_snapshots",
    "phase_at",
    "phase_of",
    "read_snapshots",
    "unpacked_snapshots",
]
