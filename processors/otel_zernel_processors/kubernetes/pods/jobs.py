"""The job of a pod, from the labels that operators of training jobs set. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
    one = labels.get(_RAY_NAME, "") if labels.get(_RAY_KIND) == "RayJob" else _first(_NAMES, labels)
    name = one or _first(_SEVERAL, labels)
    id_ = labels.get(_SLURM) or (f"{namespace}/{name}" if name else "")
    if not id_:
        return PodJob()
    found: dict[str, str | int | None] = {
        semconv.JOB_REPLICA: _first(_REPLICAS, labels),
        semconv.JOB_INDEX: _number(_first(_INDEXES, labels) or _first(_INDEXES, annotations)),
        semconv.JOB_ATTEMPT: _number(labels.get(_ATTEMPT, "")),
        semconv.JOB_QUEUE: labels.get(_QUEUE),
    }
    return PodJob(
        id_,
        name or id_,
        bool(one) or _SLURM in labels,
        {key: value for key, value in found.items() if value not in (None, "")},
    )


def _first(keys: tuple[str, ...], values: Mapping[str, str]) -> str:
    return next((value for key in keys if (value := values.get(key))), "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
