"""The autoscaler of Kubernetes, while the CPU of a gateway is idle: in an outage of the backend, for example."""

from pathlib import Path

import pytest

from tests.deploy.helm.with_kubernetes.metrics_api import idle_pods
from tests.deploy.helm.with_kubernetes.releases import install
from tests.interop.kubernetes import Kubernetes, Object, until

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
    for pod in until(pods, f"{number} pods exist"):
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
        until(lambda: decided("true"), "the autoscaler has read the metrics of the durable gateway")
        until(lambda: replicas("false") == 2, "the gateway in memory has the least number of pods")
        assert replicas("true") == 5
