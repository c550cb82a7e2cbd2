"""The pods of resources: which processes have to be read first, and what is then known. Only `read` does I/O."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from otel_zernel_libraries.job_environment import host_name
from otel_zernel_processors.kubernetes.places.processes import ProcessKey, ProcessPlace, ProcessPlaces
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable

Attributes = Mapping[str, object]


class FoundPod(NamedTuple):
    """What is known about the pod of a resource."""

    pod: KubernetesPod | None = None
    place: ProcessPlace = ProcessPlace()


class PodLookup:
    """Finds the pod of a resource: by its own attributes, or by its process if it is one of this machine."""

    def __init__(self, places: ProcessPlaces, table: PodTable, node: str, environ: Mapping[str, str]) -> None:
        """`node` is the name of this machine in Kubernetes; empty if it is not known."""
        self._places = places
        self._table = table
        self._environ = environ
        self.node = node

    @cached_property
    def host(self) -> str:
        """`host.name` in the data of this machine's receivers. Read at its first use: a constructor does no I/O."""
        return host_name(self._environ)

    def is_here(self, resource: Attributes) -> bool:
        """Whether the resource is on this machine."""
        name = resource.get("host.name")
        return bool(name) and name in (self.host, self.node)

    def process(self, resource: Attributes) -> ProcessKey | None:
        """The process of a resource. None if it is on another machine, or may have the pid of another namespace."""
        pid, created = resource.get("process.pid"), resource.get("process.creation.time")
        if not (isinstance(pid, int) and pid > 0 and isinstance(created, str) and created and self.is_here(resource)):
            return None
        return ProcessKey(pid, created)

    def missing(self, keys: Iterable[ProcessKey]) -> list[ProcessKey]:
        """The processes that have to be read."""
        return [key for key in keys if self._places.missing(key)]

    def is_unnamed(self, key: ProcessKey) -> bool:
        """Whether the process is in a pod whose name is not known."""
        of_process = self.of_process(key)
        return bool(of_process.place.container.pod_uid) and of_process.pod is None

    def of_process(self, key: ProcessKey) -> FoundPod:
        place = self._places.known(key)
        uid, container = place.container.pod_uid, place.container.container_id
        return FoundPod(self._table.by_uid(uid) or self._table.by_container(container), place)

    def of_resource(self, resource: Attributes) -> FoundPod:
        """The pod that the resource names, else that of its process. Both empty if there is none."""
        key = self.process(resource)
        pod = self.of_process(key) if key else FoundPod()
        return pod._replace(pod=self._named(resource) or pod.pod)

    def _named(self, resource: Attributes) -> KubernetesPod | None:
        table = self._table
        return (
            table.by_uid(str(resource.get("k8s.pod.uid", "")))
            or table.by_container(str(resource.get("container.id", "")))
            or table.by_name(str(resource.get("k8s.namespace.name", "")), str(resource.get("k8s.pod.name", "")))
        )
