"""The ledger of a training thread: where in the loop each moment was, and what the thread did.

The five phases are a view of it, with a fixed table.
"""

from otel_zernel_libraries.training.ledger.clock import ThreadClock as ThreadClock
from otel_zernel_libraries.training.ledger.clock import TimedSnapshot as TimedSnapshot
from otel_zernel_libraries.training.ledger.moments import MOMENTS as MOMENTS
from otel_zernel_libraries.training.ledger.moments import Activity as Activity
from otel_zernel_libraries.training.ledger.moments import Moment as Moment
from otel_zernel_libraries.training.ledger.moments import Phase as Phase
from otel_zernel_libraries.training.ledger.moments import Position as Position
from otel_zernel_libraries.training.ledger.moments import detail_of as detail_of
from otel_zernel_libraries.training.ledger.moments import phase_at as phase_at
from otel_zernel_libraries.training.ledger.moments import phase_of as phase_of
from otel_zernel_libraries.training.ledger.segments import Segment as Segment
from otel_zernel_libraries.training.ledger.segments import StepEvent as StepEvent
from otel_zernel_libraries.training.ledger.segments import Work as Work
from otel_zernel_libraries.training.ledger.segments import collective_event as collective_event
from otel_zernel_libraries.training.ledger.snapshots import STATES as STATES
from otel_zernel_libraries.training.ledger.snapshots import Snapshot as Snapshot
from otel_zernel_libraries.training.ledger.snapshots import joined_snapshots as joined_snapshots
from otel_zernel_libraries.training.ledger.snapshots import packed_snapshots as packed_snapshots
from otel_zernel_libraries.training.ledger.snapshots import read_snapshots as read_snapshots
from otel_zernel_libraries.training.ledger.snapshots import unpacked_snapshots as unpacked_snapshots
from otel_zernel_libraries.training.ledger.thread_samples import ThreadSamples as ThreadSamples
