"""The exemplars of histograms, kept until the next output."""

from collections.abc import Iterable
from heapq import nlargest

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

_MOST = 16
"""So many of a series: the greatest, which are the ones whose traces are asked for."""


class Exemplars:
    """Encoded exemplars by slot, each once: a cumulative histogram may repeat them."""

    def __init__(self) -> None:
        self._values: dict[int, dict[bytes, float]] = {}

    def keep(self, slot: int, exemplars: Iterable[Exemplar]) -> None:
        """Keeps the greatest of a slot."""
        values = self._values.setdefault(slot, {})
        values.update((one.SerializeToString(), one.as_double or one.as_int) for one in exemplars)
        if len(values) > _MOST:
            self._values[slot] = dict(nlargest(_MOST, values.items(), key=lambda pair: pair[1]))

    def take(self, slot: int) -> Iterable[bytes]:
        """Those of a slot, which are forgotten."""
        return self._values.pop(slot, {})
