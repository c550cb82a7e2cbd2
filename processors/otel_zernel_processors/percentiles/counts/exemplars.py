"""The exemplars of histograms since the last output."""

from collections.abc import Iterable
from heapq import nlargest

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

_MOST = 16
"""Exemplars of a series. The largest are kept: users look for the traces of slow values."""


class Exemplars:
    """Encoded exemplars by slot, without duplicates: a cumulative histogram may repeat them."""

    def __init__(self) -> None:
        self._values: dict[int, dict[bytes, float]] = {}

    def add(self, slot: int, exemplars: Iterable[Exemplar]) -> None:
        """Adds exemplars to a slot, and keeps the 16 largest."""
        values = self._values.setdefault(slot, {})
        values.update((exemplar.SerializeToString(), exemplar.as_double or exemplar.as_int) for exemplar in exemplars)
        if len(values) > _MOST:
            self._values[slot] = dict(nlargest(_MOST, values.items(), key=lambda pair: pair[1]))

    def pop(self, slot: int) -> Iterable[bytes]:
        """Removes and returns the exemplars of a slot."""
        return self._values.pop(slot, {})
