"""The prerequisites of the processor on this machine, for `otel-zernel doctor`."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from otel_zernel.component import Finding
from otel_zernel.errors import CannotStart
from otel_zernel_libraries.clients.kubernetes.credentials import SERVICE_ACCOUNT
from otel_zernel_processors.kubernetes.config import KubernetesApiConfig, KubernetesProcessorConfig
from otel_zernel_processors.kubernetes.pods.local_pods import NODE_NAME, own_pod, pods_with_logs
from otel_zernel_processors.kubernetes.pods.watch import access_of


def findings(config: KubernetesProcessorConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    """The sources that the configuration uses."""
    node = config.node or environ.get(NODE_NAME, "")
    missing = "the name of the node is not known; set K8S_NODE_NAME to spec.nodeName in the pod"
    yield Finding("node", f"the collector runs on {node}" if node else missing, bool(node))
    if config.own_pod:
        yield _own_pod(config, environ)
    if config.logs is not None:
        yield _pod_logs(config.logs)
    if config.api:
        yield _api(config.api, environ)
    if config.pod_resources:
        yield _socket(Path(config.pod_resources.socket))


def _own_pod(config: KubernetesProcessorConfig, environ: Mapping[str, str]) -> Finding:
    pod = own_pod(environ, Path(config.pod_info))
    if pod is None:
        return Finding("own pod", "not known; set K8S_NAMESPACE and K8S_POD_NAME by the downward API", False)
    labels = "with its labels" if pod.labels else f"without labels: {config.pod_info}/labels is not mounted"
    return Finding("own pod", f"{pod.namespace}/{pod.name} {labels}", True)


def _api(config: KubernetesApiConfig, environ: Mapping[str, str]) -> Finding:
    try:
        access = access_of(config, environ, SERVICE_ACCOUNT, "kubernetes::api")
    except CannotStart as error:
        return Finding("API server", str(error), False)
    return Finding("API server", f"{access.server}, with credentials; the watch shows whether they suffice", True)


def _pod_logs(folder: Path) -> Finding:
    try:
        pods = pods_with_logs(folder)
    except OSError as error:
        return Finding("pod logs", f"cannot read {folder}: {error.strerror}; mount it, or set pod_logs to null", False)
    return Finding("pod logs", f"{folder} names {len(pods)} pods", True)


def _socket(socket: Path) -> Finding:
    if not socket.parent.exists():
        return Finding("pod resources", f"{socket.parent} does not exist; mount it from the node", False)
    if not os.access(socket, os.R_OK | os.W_OK):
        return Finding(
            "pod resources", f"cannot open {socket}; mount its folder, and let the collector run as root", False
        )
    return Finding("pod resources", f"{socket} can be opened", True)
