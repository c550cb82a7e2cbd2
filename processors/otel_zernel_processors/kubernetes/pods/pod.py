"""One pod and its job, from its JSON in Kubernetes' API and the labels that operators of training jobs set. No I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_zernel_libraries.training import semconv

_SLURM: Final = "scheduler.slinky.slurm.net/slurm-jobid"
"""Set by Slinky's slurm-bridge: the pod runs as a job of Slurm."""
_NAMES: Final = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""The labels with the name of a job, the widest first: a JobSet has several Jobs. Kubeflow Trainer's TrainJob is a
JobSet of its name. `job-name` is the Job's label before Kubernetes 1.27."""
_RAY_NAME: Final = "ray.io/originated-from-cr-name"
_RAY_KIND: Final = "ray.io/originated-from-crd"
_SEVERAL: Final = (_RAY_NAME, "ray.io/cluster", "leaderworkerset.sigs.k8s.io/name")
"""The labels of what may run several trainings: a RayCluster has many jobs, a LeaderWorkerSet many groups."""
_REPLICAS: Final = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "volcano.sh/task-spec",
    "ray.io/group",
)
_INDEXES: Final = (
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
    "ray.io/replica-host-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
)
_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True)
class PodJob:
    """The training job that a pod belongs to. Empty texts are not known."""

    id: str = ""
    """Unique in the cluster: `NAMESPACE/NAME`, or the number of a job of Slurm."""
    name: str = ""
    is_one: bool = True
    """Whether it is one training. Otherwise any other id is better."""
    attributes: Mapping[str, str | int] | None = None
    """Its replica, the pod's index, the attempt and the queue."""


def job_of(labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str) -> PodJob:
    """The job of a pod. Empty if no label names one."""
    name_ = labels.get(_RAY_NAME, "") if labels.get(_RAY_KIND) == "RayJob" else _first(_NAMES, labels)
    name = name_ or _first(_SEVERAL, labels)
    id_ = labels.get(_SLURM) or (f"{namespace}/{name}" if name else "")
    if not id_:
        return PodJob()
    attributes: dict[str, str | int | None] = {
        semconv.JOB_REPLICA: _first(_REPLICAS, labels),
        semconv.JOB_INDEX: _number(_first(_INDEXES, labels) or _first(_INDEXES, annotations)),
        semconv.JOB_ATTEMPT: _number(labels.get(_ATTEMPT, "")),
        semconv.JOB_QUEUE: labels.get(_QUEUE),
    }
    return PodJob(
        id_,
        name or id_,
        bool(name_) or _SLURM in labels,
        {key: value for key, value in attributes.items() if value not in (None, "")},
    )


def _first(keys: tuple[str, ...], values: Mapping[str, str]) -> str:
    return next((value for key in keys if (value := values.get(key))), "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


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
        for container in status.get(kind) or ():
            if id_ := str(container.get("containerID") or "").rpartition("//")[2]:
                yield id_, str(container.get("name"))


def _owners(metadata: Json, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for owner in metadata.get("ownerReferences") or ():
        if kind := _CONTROLLERS.get(str(owner.get("kind"))):
            name = str(owner.get("name"))
            yield f"k8s.{kind}.name", name
            yield f"k8s.{kind}.uid", str(owner.get("uid") or "")
            if kind == "replicaset" and (hash_ := labels.get(_TEMPLATE_HASH)) and name.endswith(f"-{hash_}"):
                yield "k8s.deployment.name", name.removesuffix(f"-{hash_}")
