"""What happens how often in a step: batches, passes, updates and collectives."""

from typing import Final, NamedTuple

from otel_zernel_libraries.training.ledger.moments import Position

SMALL: Final = 65_536
"""Bytes of the largest small collective: latency decides how long it takes."""


class StepEvent(NamedTuple):
    """Something that happens in steps."""

    name: str
    """`batch`: one that the training thread made itself. `worker_batch`: one from worker processes. `backward`.
    `optimizer`. `inference`: a run of operators without gradients. `collective`."""
    position: str = ""
    """Of a collective: the position of the training thread when it began; else empty."""
    operation: str = ""
    """Of a collective: `all_reduce`; empty if it is not known."""
    size: str = ""
    """Of a collective: `small` up to 64 KiB, else `large`; empty if it is not known."""


def collective_event(position: Position, operation: str, size: int) -> StepEvent:
    """The event of a collective with so many bytes."""
    return StepEvent("collective", position, operation, "small" if size <= SMALL else "large")
