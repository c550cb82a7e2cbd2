"""The autoscaler of Kubernetes, while the CPU of a gateway is idle: in an outage of the backend, for example."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.answering import answering
from tests.deploy.helm.with_kubernetes.releases import install, own_address, publish
from tests.exporters.otlp.certificates import Authority
from tests.interop.kubernetes import Kubernetes, Object
from tests.waiting import wait_for

_VERSION: Final = "metrics.k8s.io/v1beta1"


def _usage(pod: Object) -> Object:
    names = [container["name"] for container in pod["spec"]["containers"]]
    return {
        "metadata": {key: pod["metadata"][key] for key in ("name", "namespace", "labels")},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": "10s",
        "containers": [{"name": name, "usage": {"cpu": "1m", "memory": "64Mi"}} for name in names],
    }


def _answer(kubernetes: Kubernetes, path: str) -> Object:
    if path == f"/apis/{_VERSION}":
        pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _VERSION, "resources": [pods]}
    if path.startswith(f"/apis/{_VERSION}/namespaces/"):
        answered = kubernetes.call("GET", f"/api/v1{path.removeprefix(f'/apis/{_VERSION}')}")["items"]
        return {"kind": "PodMetricsList", "apiVersion": _VERSION, "items": [_usage(pod) for pod in answered]}
    return {}  # the API server also asks for descriptions


@contextmanager
def idle_pods(kubernetes: Kubernetes, folder: Path) -> Iterator[None]:
    """Serves the metrics API to the autoscaler, by way of the API server."""

    def answer(path: str, _body: bytes) -> tuple[int, bytes]:
        found = _answer(kubernetes, path.partition("?")[0])
        return 200 if found else 404, json.dumps(found).encode()

    security = Authority(folder).issue("metrics").server_context()
    address = (own_address(), 0)
    with answering(answer, content_type="application/json", address=address, security=security) as port:
        _register(kubernetes, port)
        yield


def _register(kubernetes: Kubernetes, port: int) -> None:
    kubernetes.make_namespace("metrics")
    service = {"metadata": {"name": "metrics"}, "spec": {"ports": [{"name": "https", "port": 443}]}}
    kubernetes.call("POST", "/api/v1/namespaces/metrics/services", service)
    publish(kubernetes, "metrics", "metrics", port)
    group, version = _VERSION.split("/")
    spec = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "metrics", "name": "metrics", "port": 443},
    }
    body = {"metadata": {"name": f"{version}.{group}"}, "spec": spec}
    kubernetes.call("POST", "/apis/apiregistration.k8s.io/v1/apiservices", body)
    wait_for(
        lambda: kubernetes.client.get(f"/apis/{_VERSION}/namespaces/metrics/pods").status_code == 200,
        "the API server passes on requests for metrics",
    )


pytestmark = pytest.mark.soak

PATHS = {"false": "deployments", "true": "statefulsets"}
SOON = '{"scaleDown": {"stabilizationWindowSeconds": 0}}'
"""For a gateway without a durable queue: the autoscaler would wait 10 min."""


def run_pods(kubernetes: Kubernetes, namespace: str, number: int) -> None:
    """Does what the nodes do: all pods of the namespace run."""

    def pods() -> list[Object]:
        found: list[Object] = kubernetes.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found if len(found) == number else []

    since = "2026-01-01T00:00:00Z"
    status = {
        "phase": "Running",
        "startTime": since,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
    }
    for pod in wait_for(pods, f"{number} pods exist"):
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        kubernetes.call("PATCH", path, {"status": status})


def test_an_idle_gateway_with_a_durable_queue_keeps_its_pods_and_another_one_does_not(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    def replicas(durable: str) -> int:
        path = f"/apis/apps/v1/namespaces/idle-{durable}/{PATHS[durable]}/run-otel-zernel"
        return int(kubernetes.call("GET", path)["spec"]["replicas"])

    def decided(durable: str) -> bool:
        """Whether the autoscaler knows the CPU time of the pods."""
        path = f"/apis/autoscaling/v2/namespaces/idle-{durable}/horizontalpodautoscalers/run-otel-zernel"
        status = kubernetes.call("GET", path).get("status") or {}
        return any(one["resource"]["current"].get("averageValue") for one in status.get("currentMetrics") or ())

    with idle_pods(kubernetes, tmp_path):
        for durable in PATHS:
            kubernetes.make_namespace(f"idle-{durable}")
            changes = {"statefulset.enabled": durable, "replicaCount": "5"}
            install(kubernetes, f"idle-{durable}", "gateway", changes)
            run_pods(kubernetes, f"idle-{durable}", 5)
            changes |= {"autoscaling.enabled": "true"} | ({} if durable == "true" else {"autoscaling.behavior": SOON})
            install(kubernetes, f"idle-{durable}", "gateway", changes)
        wait_for(lambda: decided("true"), "the autoscaler has read the metrics of the durable gateway")
        wait_for(lambda: replicas("false") == 2, "the gateway in memory has the least number of pods")
        assert replicas("true") == 5
