"""The names of this node's pods, from the kubelet's folder of logs: no permission in Kubernetes is needed."""

import os
from pathlib import Path

from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod


def pods_with_logs(folder: Path) -> list[KubernetesPod]:
    """The pods that have a folder `NAMESPACE_POD_UID` (pkg/kubelet/kuberuntime/helpers.go, `BuildPodLogsDirectory`).

    Raises `OSError` if the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        parts = [entry.name.split("_") for entry in entries]
    # Names in Kubernetes have no underscore.
    return [KubernetesPod(namespace, name, uid) for namespace, name, uid in filter(lambda one: len(one) == 3, parts)]
