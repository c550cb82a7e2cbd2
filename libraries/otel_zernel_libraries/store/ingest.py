"""The table `ingest`: numbers by which writers and readers notice changes of a store."""

from dataclasses import dataclass
from typing import Final

REMOVALS: Final = -1
"""The slot with the number of removals of series. The slots from 0 on count batches."""
IDENTITY: Final = -2
"""The slot with a random number. Another number means that the tables were emptied or made anew."""
COUNTS: Final = (
    f"SELECT coalesce(sum(batches) FILTER (WHERE slot >= 0), 0), max(batches) FILTER (WHERE slot = {REMOVALS}), "
    f"max(batches) FILTER (WHERE slot = {IDENTITY})"
)
"""The columns of a query for the counts of a store."""


@dataclass(slots=True, frozen=True)
class StoreState:
    """The state of a store at one moment."""

    batches: int
    """Grows with each stored batch, and with each removal of old points."""
    removals: int | None
    """Grows with each removal of series."""
    identity: str
    """Another one after the tables were emptied, made anew, or restored from a backup."""
