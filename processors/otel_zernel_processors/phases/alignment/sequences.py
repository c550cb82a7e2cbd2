"""The numbers of collectives: what all ranks of a job share."""

from typing import NamedTuple

from otel_zernel_processors.phases.scopes.timeline import ClosedStep

_ISSUED_BY = frozenset({"data_loading", "optimizer"})
"""The kinds of intervals that may have the number of c10d's collectives."""


class CollectiveNumber(NamedTuple):
    """A collective, named the same on all ranks that take part. Sorts by the communicator's size, then by number."""

    size: int
    """The number of ranks of its communicator; 0 if unknown."""
    sequence: int
    """Counted from the creation of the communicator. The first is 1."""
    communicator: str
    """The id that all ranks of the communicator share; empty if unknown."""


def first_number(closed: ClosedStep) -> CollectiveNumber | None:
    """The first collective of a step on its largest communicator; None if no collective has a number.

    Of several communicators of that size, the one with the highest number counts. Numbers only grow, so the result is
    never the same for two steps, and all ranks choose the same one.
    """
    first: dict[tuple[int, str, str], int] = {}
    """By communicator: its size, the id that its ranks share, and its address in the process."""
    for collective in closed.collectives:
        if (call := collective.collective) and call.sequence > 0:
            communicator = call.world_size, call.shared_communicator, call.communicator
            first[communicator] = min(call.sequence, first.get(communicator, call.sequence))
    return max((CollectiveNumber(key[0], sequence, key[1]) for key, sequence in first.items()), default=None)


def issued_by_end(closed: ClosedStep) -> int:
    """The number of the latest c10d collective that the process had issued by the end of the step; 0 if unknown.

    Only spans that every step of every rank has carry it. A wait has a span only if it was long.
    """
    return next((interval.issued for interval in reversed(closed.step.intervals) if interval.kind in _ISSUED_BY), 0)
