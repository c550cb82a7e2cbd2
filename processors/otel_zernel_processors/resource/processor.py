"""The resource processor."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Processor
from otel_zernel.otlp.points import any_value
from otel_zernel_processors.resource.config import Action, ResourceConfig
from otel_zernel_processors.resource.detect import DETECTORS, DetectionSources

_CACHED = 4096  # resources whose result is cached


class ResourceProcessor(Processor):
    """Adds, changes and removes resource attributes; detects those of host, process and environment."""

    Config = ResourceConfig
    stability = "beta"

    def __init__(self, config: ResourceConfig, context: Context, sources: DetectionSources | None = None) -> None:
        super().__init__(config, context)
        self._sources = sources or DetectionSources()
        self._change = lru_cache(_CACHED)(self._apply)

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch, edited only where a resource changes."""
        for index, resource in self._changed(batch.metrics.resource_metrics):
            batch.edit_metrics().resource_metrics[index].resource.CopyFrom(resource)
        for index, resource in self._changed(batch.spans.resource_spans):
            batch.edit_spans().resource_spans[index].resource.CopyFrom(resource)
        for index, resource in self._changed(batch.logs.resource_logs):
            batch.edit_logs().resource_logs[index].resource.CopyFrom(resource)
        return (batch,)

    def _changed(self, holders: Sequence[ResourceMetrics | ResourceSpans | ResourceLogs]) -> list[tuple[int, Resource]]:
        """The resources that change, with their indexes."""
        outcomes = [self._change(holder.resource.SerializeToString()) for holder in holders]
        return [(index, resource) for index, resource in enumerate(outcomes) if resource is not None]

    def _apply(self, encoded: bytes) -> Resource | None:
        """The resource after all actions; None if it does not change."""
        resource = Resource.FromString(encoded)
        before = {pair.key: pair.value for pair in resource.attributes}
        after = dict(before)
        for action in self._actions:
            _act(after, action)
        if after == before:
            return None
        del resource.attributes[:]
        resource.attributes.extend(KeyValue(key=key, value=value) for key, value in after.items())
        return resource

    @cached_property
    def _actions(self) -> list[Action]:
        """All actions. Detection runs at the first batch: constructors must not read the environment."""
        return [*self._detected(), *self.config.attributes]

    def _detected(self) -> Iterator[Action]:
        found = {}
        for name in reversed(self.config.detect):
            found.update(DETECTORS[name](self._sources, self.context.logger))
        for key, value in found.items():
            yield Action(key=key, value=value, action="upsert" if self.config.override else "insert")


def _act(attributes: dict[str, AnyValue], action: Action) -> None:
    present = action.key in attributes
    if action.action == "delete":
        attributes.pop(action.key, None)
    elif (action.action == "insert" and present) or (action.action == "update" and not present):
        return
    elif action.value is not None:
        attributes[action.key] = any_value(action.value)
    elif action.from_attribute in attributes:
        attributes[action.key] = attributes[action.from_attribute]
