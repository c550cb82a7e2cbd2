"""The processor `kubernetes` with a real API server: the health says when it may not read pods."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collectors import running_collector
from tests.free_ports import free_port
from tests.interop.kubernetes import Kubernetes, running_kubernetes
from tests.waiting import wait_for

pytestmark = pytest.mark.soak

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def grant(kubernetes: Kubernetes) -> None:
    """Binds the account of the collector to a role with the rights that the README names."""
    group = "rbac.authorization.k8s.io"
    roles = f"/apis/{group}/v1/clusterroles"
    if kubernetes.client.get(f"{roles}/pods").status_code == 404:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
        kubernetes.call("POST", roles, {"metadata": {"name": "pods"}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "pods"}
    kubernetes.call("POST", BINDINGS, {"metadata": {"name": "pods"}, "roleRef": role, "subjects": subjects})


@contextmanager
def collector(kubernetes: Kubernetes, folder: Path) -> Iterator[int]:
    """A collector that watches all pods; the port of its health."""
    port = free_port()
    access = kubernetes.write_kubeconfig(kubernetes.token("default"), "collector")
    config: dict[str, Any] = {
        "extensions": {"health_check": {"endpoint": f"127.0.0.1:{port}"}},
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{free_port()}"}}}},
        "processors": {"kubernetes": {"api": {"kubeconfig": str(access), "nodes": "all"}, "pod_logs": None}},
        "exporters": {"debug": {}},
        "service": {
            "extensions": ["health_check"],
            "pipelines": {"metrics": {"receivers": ["otlp"], "processors": ["kubernetes"], "exporters": ["debug"]}},
        },
    }
    with running_collector(folder, config) as running:
        yield port
    assert running.process.returncode == 0, running.log


def problem(port: int) -> str | None:
    """The problem of the processor in the answer of health_check; None while nobody answers."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=30).json()
    except httpx.TransportError:
        return None
    if "upSince" not in answer:
        return None
    return str(answer.get("components", {}).get("processors::kubernetes", ""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_withdrawn_rights_are_named_when_the_server_is_back_and_cleared_when_they_return(
    tmp_path: Path, number: signal.Signals
) -> None:
    """After SIGTERM, the server serves the open watch for another minute."""
    with running_kubernetes(tmp_path) as kubernetes:
        grant(kubernetes)
        with collector(kubernetes, tmp_path) as port:
            wait_for(lambda: problem(port) == "", "the collector watches the pods")
            kubernetes.call("DELETE", f"{BINDINGS}/pods")
            kubernetes.stop_api_server(number)
            wait_for(lambda: problem(port), "the health names the server that is away")
            kubernetes.start_api_server()
            wait_for(lambda: "grant the permissions" in (problem(port) or ""), "the health names the missing rights")
            grant(kubernetes)
            wait_for(lambda: problem(port) == "", "the health is well again")
