"""The numbers of collectives: what all ranks of a job share."""

from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

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
    for collective in closed.collectives:
        if collective.span and (found := _number(collective.span)):
            sequence, communicator = found
            first[communicator] = min(sequence, first.get(communicator, sequence))
    return max((CollectiveNumber(key[0], sequence, key[1]) for key, sequence in first.items()), default=None)


def issued_by_end(closed: ClosedStep) -> int:
    """The number of the latest c10d collective that the process had issued by the end of the step; 0 if unknown.

    Only spans that every step of every rank has carry it. A wait has a span only if it was long.
    """
    return next((one.issued for one in reversed(closed.step.intervals) if one.kind in _ISSUED_BY), 0)


def _number(span: Span) -> tuple[int, tuple[int, str, str]] | None:
    """The number of a collective, and its communicator: the size, the shared id and the address in the process."""
    sequence, size, shared, address = 0, 0, "", ""
    for attribute in span.attributes:
        key = attribute.key
        if key == "zernel.collective.sequence":
            sequence = attribute.value.int_value
        elif key == "zernel.world_size":
            size = attribute.value.int_value
        elif key == "zernel.collective.communicator":
            shared = attribute.value.string_value
        elif key == "zernel.nccl.communicator":
            address = attribute.value.string_value
    return (sequence, (size, shared, address)) if sequence > 0 else None
