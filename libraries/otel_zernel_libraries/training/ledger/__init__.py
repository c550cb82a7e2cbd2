"""The ledger of a training thread: where in the loop each moment was, and what the thread did.

The five phases are a view of it, with a fixed table.
"""

from otel_zernel_libraries.training.ledger.moments import Activity, Phase, Position, phase_of
from otel_zernel_libraries.training.ledger.snapshots import STATES, Snapshot

__all__ = ["STATES", "Activity", "Phase", "Position", "Snapshot", "phase_of"]
