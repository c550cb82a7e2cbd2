"""The configuration of the kubernetes processor."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration, ReadableFile, Section


class PodResourcesConfig(Section):
    """The kubelet's list of the pods that have GPUs."""

    socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """The socket. Mount its folder, not the socket itself, which changes when the kubelet restarts."""
    interval: PositiveDuration = 15.0
    """Seconds between two readings. The kubelet answers at most 100 calls a second, of all clients together."""
    resources: tuple[str, ...] = ("nvidia.com/*",)
    """The resources of device plugins that are GPUs: names or globs."""
    drivers: tuple[str, ...] = ("gpu.nvidia.com",)
    """The drivers of dynamic resource allocation (DRA) whose devices are GPUs: names or globs."""


class KubernetesApiConfig(Section):
    """The pods, watched in Kubernetes' API. Labels, annotations, owners and jobs need it."""

    kubeconfig: Annotated[str | None, ReadableFile()] = None
    """A kubeconfig file. By default the service account of the collector's pod is used."""
    kube_context: str | None = None
    """A context of the kubeconfig file, in place of its current one."""
    nodes: Literal["this", "all"] = "this"
    """The nodes whose pods are watched: that of the collector, or all, for a gateway."""
    request_timeout: PositiveDuration = 10.0
    """Seconds for one request to the API server."""


class KubernetesProcessorConfig(ComponentConfig):
    """Where the names of pods, containers and jobs come from, and which of them become attributes."""

    node: str | None = None
    """The name of the collector's node. By default that in the variable K8S_NODE_NAME."""
    own_pod: bool = False
    """Whether all data comes from the collector's own pod, as in a sidecar."""
    pod_info: str = "/etc/podinfo"
    """With `own_pod`: the folder of a downward API volume that has the files `labels` and `annotations`."""
    proc_root: str = "/proc"
    """The mounted /proc whose processes the receivers see."""
    pod_logs: str | None = "/var/log/pods"
    """The kubelet's folder of logs. The names of its folders name the pods, without any permission in Kubernetes.
    Not used with `own_pod`."""
    pod_resources: PodResourcesConfig | None = None
    """The kubelet's list of GPUs by pod. Without this section, no pod of a GPU is reported."""
    api: KubernetesApiConfig | None = None
    """Kubernetes' API. Without this section, it is not asked."""
    labels: tuple[str, ...] = ()
    """The labels of pods that become attributes `k8s.pod.label.KEY`: names or globs."""
    annotations: tuple[str, ...] = ()
    """The annotations of pods that become attributes `k8s.pod.annotation.KEY`: names or globs."""
    retention: PositiveDuration = 300.0
    """Seconds for which a deleted pod keeps its name, for its last points."""
    max_pods: Annotated[int, Field(ge=1)] = 10_000
    """The pods that are remembered. Deleted pods are forgotten first, then those used least lately."""

    @model_validator(mode="after")
    def _labels_have_a_source(self) -> "KubernetesProcessorConfig":
        for name in ("labels", "annotations"):
            if getattr(self, name) and not (self.api or self.own_pod):
                raise ValueError(f"{name} need a source: add the section api, or set own_pod in a sidecar")
        return self

    @property
    def logs(self) -> Path | None:
        """`pod_logs`, unless the own pod is the only one."""
        return Path(self.pod_logs) if self.pod_logs is not None and not self.own_pod else None

    @property
    def proc(self) -> Path:
        return Path(self.proc_root)
