"""Turns: one request after another sends the metrics of a target (its job and instance), in the order of the queue."""

from typing import Final

from otel_zernel.batch import Batch
from otel_zernel.batch.identities import Identity, identities_of

MOST_ITEMS: Final = 8192
MOST_BYTES: Final = 2 << 20
"""The size at which no more entries join a request that waits for its turn. Servers accept 4 MiB by default."""


class TargetTurns:
    """The targets whose metrics are being sent. A request waits while an earlier one has a target in common with it.

    Otherwise a batch that is tried again arrives after newer ones, which a store in the order of time refuses.
    """

    def __init__(self, *, needed: bool) -> None:
        """`needed`: whether there are several consumers, and the exporter wants the order."""
        self._needed = needed
        self._sending: set[Identity] = set()

    def targets(self, batch: Batch) -> set[Identity]:
        """The targets of a batch. Spans and log records have none: their order does not matter."""
        return identities_of(batch.metrics_bytes()) if self._needed and batch.has_metrics else set()

    def are_free(self, targets: set[Identity]) -> bool:
        """Whether no request with one of these targets is being sent."""
        return self._sending.isdisjoint(targets)

    def begin(self, targets: set[Identity]) -> None:
        """A request with these targets is being sent."""
        self._sending |= targets

    def end(self, targets: set[Identity]) -> None:
        """The request is delivered, given up or given back."""
        self._sending -= targets
