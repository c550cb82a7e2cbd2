"""The resources of batches with the attributes of their pods. No I/O."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import points
from otel_zernel.batch.parsing import parse
from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.repeated_fields import keep_only
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.kubernetes.enrichment import PodAttributes, changes, of_place
from otel_zernel_processors.kubernetes.lookup import FoundPod, PodLookup
from otel_zernel_processors.kubernetes.places.processes import ProcessKey
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable
from otel_zernel_processors.kubernetes.seen import Attributes, SeenResources, plain

GPU_PROCESS: Final = "zernel.gpu.process."
"""The metrics of a GPU whose points have a process each."""
_OF_POINTS: Final = ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name", semconv.JOB_ID)
_REMEMBERED: Final = 4096
"""Resources whose result is remembered."""


def process_points(resource: ResourceMetrics) -> Iterator[tuple[Any, ProcessKey]]:
    """The points of the processes of a GPU, with their pids in the collector's pid namespace."""
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            if metric.name.startswith(GPU_PROCESS):
                for point in points(metric):
                    attributes = plain(point.attributes)
                    pid = attributes.get("process.pid")
                    if isinstance(pid, int) and pid > 0 and semconv.PROCESS_PID_NAMESPACE not in attributes:
                        yield point, ProcessKey(pid)


class ResourceNames:
    """Adds what is known about pods to resources and points."""

    def __init__(
        self,
        lookup: PodLookup,
        seen: SeenResources,
        table: PodTable,
        attributes: PodAttributes,
        own: Callable[[], KubernetesPod | None],
    ) -> None:
        """`own` returns the collector's own pod, if all data is of that pod, else None."""
        self._lookup = lookup
        self._seen = seen
        self._table = table
        self._attributes = attributes
        self._own = own
        self._version: object = None
        """The state of knowledge from which the outcomes were made."""
        self._outcome = lru_cache(_REMEMBERED)(self._apply)
        """By encoded resource."""
        self.reads = 0
        """Grows whenever a process was read."""

    def complete_points(self, resource: ResourceMetrics) -> None:
        """Adds the pods of processes to the points of a GPU. The resource is editable."""
        for point, key in process_points(resource):
            known = self._found(self._lookup.of_process(key))
            present = {pair.key for pair in point.attributes}
            added: dict[str, str | int] = {}
            for name in _OF_POINTS:
                if name in known and name not in present:
                    added[name] = known[name]
            point.attributes.extend(key_values(added))

    def changed(self, encoded: bytes) -> Resource | None:
        """The resource with its names; None if it does not change."""
        version = (self._table.version, self.reads, self._own())
        if version != self._version:
            self._version = version
            self._outcome.cache_clear()
        return self._outcome(encoded)

    def _apply(self, encoded: bytes) -> Resource | None:
        existing = self._seen.of(encoded).attributes
        with_own = self._with_own(self._lookup.of_resource(existing), existing)
        names = self._found(with_own)
        if self._lookup.node and (with_own.pod is self._own() is not None or self._lookup.is_here(existing)):
            names.setdefault("k8s.node.name", self._lookup.node)
        wanted = changes(existing, names, with_own.pod, names_job=with_own.place.names_job)
        if not wanted:
            return None
        resource = parse(Resource, encoded)
        keep_only(resource.attributes, lambda pair: pair.key not in wanted)
        resource.attributes.extend(key_values(wanted))
        return resource

    def _with_own(self, pod: FoundPod, existing: Attributes) -> FoundPod:
        """In a sidecar, data that names no other pod is of the own one."""
        own = self._own()
        if pod.pod or own is None:
            return pod
        others = {"k8s.pod.uid": own.uid, "k8s.pod.name": own.name}
        is_own = all(existing.get(name, value) == value for name, value in others.items())
        return pod._replace(pod=own) if is_own else pod

    def _found(self, pod: FoundPod) -> dict[str, str | int]:
        return {**of_place(pod.place, pod.pod), **self._of_pod(pod.pod)}

    def _of_pod(self, pod: KubernetesPod | None) -> dict[str, str | int]:
        return self._attributes.of_pod(pod) if pod else {}
