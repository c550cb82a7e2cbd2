"""The attributes that name the pod, the container and the job of a resource. No I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_zernel_libraries.training import semconv
from otel_zernel_processors.kubernetes.places.processes import ProcessPlace
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod

Value = str | int
_UNKNOWN_SERVICE = "unknown_service"
"""What OpenTelemetry's SDKs call a program without a name."""


@dataclass(frozen=True, slots=True)
class PodAttributes:
    """Makes attributes of pods. The two functions say which labels and annotations become attributes."""

    is_label: Callable[[str], bool]
    is_annotation: Callable[[str], bool]

    def of_pod(self, pod: KubernetesPod) -> dict[str, Value]:
        """The attributes that all containers of the pod have."""
        job = pod.job
        attributes: dict[str, Value] = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            "k8s.node.name": pod.node,
            **pod.owners,
            semconv.JOB_ID: job.id,
            **(job.attributes or {}),
        }
        attributes |= {f"k8s.pod.label.{key}": value for key, value in pod.labels.items() if self.is_label(key)}
        attributes |= {
            f"k8s.pod.annotation.{key}": value for key, value in pod.annotations.items() if self.is_annotation(key)
        }
        return {name: value for name, value in attributes.items() if value != ""}


def of_place(place: ProcessPlace, pod: KubernetesPod | None) -> dict[str, Value]:
    """The attributes of a process's container, and of its job on bare metal."""
    container = place.container
    name = container.container_name or (pod.containers.get(container.container_id, "") if pod else "")
    attributes = {
        "container.id": container.container_id,
        "k8s.pod.uid": container.pod_uid,
        "k8s.container.name": name,
        semconv.JOB_ID: container.slurm_job,
    }
    return {name: value for name, value in attributes.items() if value}


def changes(
    existing: Mapping[str, object], attributes: Mapping[str, Value], pod: KubernetesPod | None, *, names_job: bool
) -> dict[str, Value]:
    """The attributes to set. Existing ones stay, but for a weaker id of the job, and the name of an unnamed service.

    `names_job` says that the job's id in the resource comes from the user or a scheduler.
    """
    wanted = {name: value for name, value in attributes.items() if name not in existing}
    job = pod.job if pod else None
    if job and job.id and job.is_one and not names_job and existing.get(semconv.JOB_ID) != job.id:
        wanted[semconv.JOB_ID] = job.id
    if pod and str(existing.get("service.name", "")).startswith(_UNKNOWN_SERVICE):
        wanted["service.name"] = (job.name if job else "") or pod.name
    return wanted
