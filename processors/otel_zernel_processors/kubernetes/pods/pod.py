"""One pod, and its JSON in Kubernetes' API. No I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_zernel_processors.kubernetes.pods.jobs import PodJob, job_of

Json = Mapping[str, Any]
_MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation with the uid that the kubelet uses for a static pod. The API's uid is another one."""
_TEMPLATE_HASH: Final = "pod-template-hash"
_LONGEST: Final = 4096
"""Characters of an annotation that are kept."""
_CONTROLLERS: Final = {
    "Job": "job",
    "CronJob": "cronjob",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
    "ReplicaSet": "replicaset",
    "Deployment": "deployment",
}
"""The kinds of owners that the semantic conventions have attributes for."""


@dataclass(frozen=True, slots=True)
class KubernetesPod:
    """A pod, as far as it is known."""

    namespace: str
    name: str
    uid: str = ""
    """The uid in paths of the node: for a static pod not the one of the API."""
    node: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)
    """The names of its containers by their ids."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Attributes of its owners, such as `k8s.job.name`."""
    has_ended: bool = False
    """Whether all of its containers have ended for good."""

    @property
    def job(self) -> PodJob:
        return job_of(self.labels, self.annotations, self.namespace)


def pod_of(item: Json) -> KubernetesPod:
    """The pod. Raises `AttributeError`, `TypeError` or `KeyError` for JSON of another layout."""
    metadata, status, spec = item["metadata"], item.get("status") or {}, item.get("spec") or {}
    labels, annotations = _texts(metadata.get("labels")), _texts(metadata.get("annotations"))
    return KubernetesPod(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=annotations.get(_MIRROR) or str(metadata["uid"]),
        node=str(spec.get("nodeName") or ""),
        labels=labels,
        annotations=annotations,
        containers=dict(_containers(status)),
        owners=dict(_owners(metadata, labels)),
        has_ended=status.get("phase") in ("Succeeded", "Failed"),
    )


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(key): str(value)[:_LONGEST] for key, value in (values or {}).items()}


def _containers(status: Json) -> Iterator[tuple[str, str]]:
    """A status has the id with the name of its runtime: `containerd://ID`."""
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(kind) or ():
            if id_ := str(one.get("containerID") or "").rpartition("//")[2]:
                yield id_, str(one.get("name"))


def _owners(metadata: Json, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for owner in metadata.get("ownerReferences") or ():
        if kind := _CONTROLLERS.get(str(owner.get("kind"))):
            name = str(owner.get("name"))
            yield f"k8s.{kind}.name", name
            yield f"k8s.{kind}.uid", str(owner.get("uid") or "")
            if kind == "replicaset" and (hash_ := labels.get(_TEMPLATE_HASH)) and name.endswith(f"-{hash_}"):
                yield "k8s.deployment.name", name.removesuffix(f"-{hash_}")
