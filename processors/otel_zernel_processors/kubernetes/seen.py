"""The resources that were seen, read once each. No I/O."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import STABLE_SIGNALS, Batch
from otel_zernel.batch.parsing import parse
from otel_zernel.batch.resources import holders_of
from otel_zernel_libraries.attributes.values import PlainValue, plain_value
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
    """The resources that were used lately, by their encoding."""

    def __init__(self, lookup: PodLookup) -> None:
        self._lookup = lookup
        self._seen: OrderedDict[bytes, SeenResource] = OrderedDict()

    def __getitem__(self, encoded: bytes) -> SeenResource:
        found = self._seen.get(encoded)
        if found is None:
            self._seen[encoded] = found = self._read(encoded)
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(encoded)
        return found

    def of_batch(self, batch: Batch) -> Iterator[SeenResource]:
        """The resources of all signals."""
        for signal in STABLE_SIGNALS:
            for holder in holders_of(batch, signal):
                yield self[holder.resource.SerializeToString()]

    def gpus(self, batch: Batch) -> Iterator[tuple[int, ResourceMetrics]]:
        """The metrics of this machine's GPUs, with their indexes."""
        for index, holder in enumerate(batch.metrics.resource_metrics):
            if self[holder.resource.SerializeToString()].is_gpu:
                yield index, holder

    def _read(self, encoded: bytes) -> SeenResource:
        attributes = plain(parse(Resource, encoded).attributes)
        is_gpu = attributes.get("hw.type") == "gpu" and self._lookup.is_here(attributes)
        return SeenResource(attributes, self._lookup.process(attributes), is_gpu)
