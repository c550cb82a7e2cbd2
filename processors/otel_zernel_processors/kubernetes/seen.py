"""The resources that were seen, read once each. No I/O."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import STABLE_SIGNALS, Batch
from otel_zernel.batch.parsing import parse
from otel_zernel_libraries.attributes.values import PlainValue, plain_value
from otel_zernel_libraries.resources import holders_of
from otel_zernel_processors.kubernetes.lookup import PodLookup
from otel_zernel_processors.kubernetes.places.processes import ProcessKey

_REMEMBERED: Final = 4096
Attributes = dict[str, PlainValue]


def plain(attributes: Any) -> Attributes:
    """The attributes of a message as Python's own types."""
    return {pair.key: plain_value(pair.value, bytes.hex) for pair in attributes}


class SeenResource(NamedTuple):
    """What the attributes of a resource say."""

    attributes: Attributes
    process: ProcessKey | None
    """The process of this machine that the resource is."""
    is_gpu: bool
    """Whether it is a GPU of this machine."""


class SeenResources:
    """The resources that were used lately."""

    def __init__(self, lookup: PodLookup) -> None:
        self._lookup = lookup
        self.of = lru_cache(_REMEMBERED)(self._read)
        """By their encoding."""

    def of_batch(self, batch: Batch) -> Iterator[SeenResource]:
        """The resources of all signals."""
        for signal in STABLE_SIGNALS:
            for holder in holders_of(batch, signal):
                yield self.of(holder.resource.SerializeToString())

    def gpus(self, batch: Batch) -> Iterator[tuple[int, ResourceMetrics]]:
        """The metrics of this machine's GPUs, with their indexes."""
        for index, holder in enumerate(batch.metrics.resource_metrics):
            if self.of(holder.resource.SerializeToString()).is_gpu:
                yield index, holder

    def _read(self, encoded: bytes) -> SeenResource:
        attributes = plain(parse(Resource, encoded).attributes)
        is_gpu = attributes.get("hw.type") == "gpu" and self._lookup.is_here(attributes)
        return SeenResource(attributes, self._lookup.process(attributes), is_gpu)
