"""The resource and the resource_detection processors."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import ClassVar

from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from otel_zernel.batch import Batch
from otel_zernel.batch.parsing import parse
from otel_zernel.component import Context, Processor
from otel_zernel_libraries.attributes.actions import Act, changes_by, compiled, write
from otel_zernel_libraries.attributes.config import AttributeAction
from otel_zernel_processors.resource.config import DetectionConfig, ResourceConfig, ResourceDetectionConfig
from otel_zernel_processors.resource.detect import DETECTORS, Attributes, DetectionSources

_CACHED = 4096  # resources whose result is cached
_OF_SYSTEM = frozenset({"host.name", "os.type"})  # as in the OpenTelemetry Collector


class ResourceProcessor(Processor):
    """Adds, changes and removes resource attributes; detects those of host, process and environment."""

    Config: ClassVar[type[DetectionConfig]] = ResourceConfig
    stability = "beta"

    def __init__(self, config: DetectionConfig, context: Context, sources: DetectionSources | None = None) -> None:
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
        resource = parse(Resource, encoded)
        changes = changes_by(self._act, None, resource)
        if changes is None:
            return None
        write(resource, changes)
        return resource

    @cached_property
    def _act(self) -> Act:
        """All actions. Detection runs at the first batch: constructors must not read the environment."""
        return compiled([*self._detected(), *self._actions()])

    def _actions(self) -> Sequence[AttributeAction]:
        return self.config.attributes if isinstance(self.config, ResourceConfig) else ()

    def _detected(self) -> Iterator[AttributeAction]:
        found: Attributes = {}
        for name in reversed(self.config.detectors):
            detected = DETECTORS[name](self._sources, self.context.logger)
            found.update(self._enabled(detected) if name == "system" else detected)
        for key, value in found.items():
            yield AttributeAction(key=key, value=value, action="upsert" if self.config.override else "insert")

    def _enabled(self, detected: Attributes) -> Attributes:
        """The attributes of the detector `system` that are wanted."""
        switches = self.config.system.resource_attributes
        wanted = {key: switches[key].enabled if key in switches else key in _OF_SYSTEM for key in detected}
        return {key: value for key, value in detected.items() if wanted[key]}


class ResourceDetectionProcessor(ResourceProcessor):
    """Adds attributes of host, process and environment to resources."""

    Config = ResourceDetectionConfig
