"""A watch of pods in Kubernetes' API, which keeps a table up to date."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_libraries.clients.api_access import Access
from otel_zernel_libraries.clients.json_client import JsonClient
from otel_zernel_libraries.clients.kubernetes import credentials
from otel_zernel_libraries.clients.kubernetes.collection import Collection
from otel_zernel_processors.kubernetes.config import KubernetesApiConfig
from otel_zernel_processors.kubernetes.pods.pod import pod_of
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable

_PODS: Final = "/api/v1/pods"


class PodWatch:
    """The pods of one node, or of all. Enter it, and run it until it is cancelled."""

    def __init__(
        self,
        config: KubernetesApiConfig,
        table: PodTable,
        context: Context,
        environ: Mapping[str, str],
        service_account: Path,
    ) -> None:
        self._config = config
        self._table = table
        self._context = context
        setting = f"{context.path}::api"
        read = partial(access_of, config, environ, service_account, setting)
        self.client = JsonClient(read, "Kubernetes", setting, config.request_timeout, context)
        self._uids: dict[str, str] = {}
        """The uids on the node, by those of the API. They differ for static pods."""

    def of_node(self, node: str, report: Callable[[str | None], None]) -> Collection:
        """The watch, which reports its problem, or None. Raises `CannotStart` if it needs the name of the node."""
        if self._config.nodes == "this" and not node:
            raise CannotStart(
                f"{self._context.path}::node: the name of the collector's node is not known; set K8S_NODE_NAME to"
                " spec.nodeName in the pod, or set api::nodes to all"
            )
        selection = {"fieldSelector": f"spec.nodeName={node}"} if self._config.nodes == "this" else {}
        return Collection(self.client, _PODS, selection, self._changed, self._context.clock, "uid", report)

    def _changed(self, uid: str, item: Mapping[str, Any] | None) -> None:
        if item is None:
            self._table.delete(self._uids.pop(uid, uid))
            return
        pod = pod_of(item)
        self._uids[uid] = pod.uid
        self._table.put(pod)


def access_of(config: KubernetesApiConfig, environ: Mapping[str, str], service_account: Path, setting: str) -> Access:
    """The API server and the credentials. Raises `CannotStart`, which names `setting`."""
    if config.kubeconfig:
        return credentials.of_kubeconfig(Path(config.kubeconfig), config.kube_context, setting).access
    return credentials.of_pod(environ, service_account, setting).access
