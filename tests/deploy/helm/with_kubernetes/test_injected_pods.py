"""A real API server calls the webhook: every kind of pod is accepted, gets the sidecar, and works as before."""

from typing import Any

import pytest

from otel_zernel_libraries.clients.kubernetes.credentials import SERVICE_ACCOUNT
from tests.deploy.helm.with_kubernetes.releases import make_pod, pod_of, sidecars
from tests.interop.kubernetes import Kubernetes, Object
from tests.waiting import wait_for

pytestmark = pytest.mark.soak


def limited(cpu: str, memory: str, **fields: Any) -> list[Object]:
    """The containers of a pod with these limits."""
    return [{"name": "train", "image": "train", "resources": {"limits": {"cpu": cpu, "memory": memory}, **fields}}]


def test_a_pod_without_anything_special_gets_the_sidecar_and_the_secret_of_its_image(injecting: Kubernetes) -> None:
    pod = make_pod(injecting, "jobs", "plain", imagePullSecrets=[{"name": "own"}])
    assert sidecars(pod) == ["otel-zernel"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "own"}]
    assert pod["status"]["qosClass"] == "Burstable"


def test_the_sidecar_gets_no_token_although_the_job_has_one(injecting: Kubernetes) -> None:
    pod = make_pod(injecting, "jobs", "token")
    tokens = {one["name"] for one in pod["spec"]["volumes"] if "projected" in one}

    def mounted(container: Object) -> list[str]:
        return [one["name"] for one in container["volumeMounts"] if one["mountPath"] == str(SERVICE_ACCOUNT)]

    assert set(mounted(pod["spec"]["containers"][0])) == tokens
    assert mounted(pod["spec"]["initContainers"][0]) == ["no-token-otel-zernel"]


def test_a_guaranteed_pod_stays_guaranteed(injecting: Kubernetes) -> None:
    pod = make_pod(injecting, "jobs", "guaranteed", containers=limited("8", "64Gi"))
    assert sidecars(pod)
    assert pod["status"]["qosClass"] == "Guaranteed"


def test_a_pod_with_resources_of_its_own_is_accepted_and_stays_guaranteed(injecting: Kubernetes) -> None:
    resources = {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8", "memory": "64Gi"}}
    pod = make_pod(injecting, "jobs", "whole", resources=resources, containers=limited("8", "64Gi"))
    assert sidecars(pod)
    assert pod["status"]["qosClass"] == "Guaranteed"


def test_a_quota_on_limits_accepts_a_pod_that_it_accepts_without_the_sidecar(injecting: Kubernetes) -> None:
    injecting.make_namespace("quota")
    path = "/api/v1/namespaces/quota/resourcequotas"
    hard = {"limits.cpu": "20", "limits.memory": "100Gi"}
    injecting.call("POST", path, {"metadata": {"name": "limits"}, "spec": {"hard": hard}})
    wait_for(lambda: injecting.call("GET", f"{path}/limits")["status"].get("hard"), "the quota is in force")
    refused = injecting.client.post("/api/v1/namespaces/quota/pods", json=pod_of("unlimited"))
    assert refused.status_code == 403
    assert "must specify limits.cpu" in refused.text
    for name, fields in (("burstable", {"requests": {"cpu": "1"}}), ("guaranteed", {})):
        assert sidecars(make_pod(injecting, "quota", name, containers=limited("8", "40Gi", **fields)))


def test_on_the_network_of_the_node_the_sidecar_reserves_no_port_and_two_pods_differ(injecting: Kubernetes) -> None:
    def ports(name: str) -> set[str]:
        [sidecar] = make_pod(injecting, "jobs", name, hostNetwork=True)["spec"]["initContainers"]
        assert "ports" not in sidecar
        moved = {one["value"] for one in sidecar["env"] if one["name"].endswith("_PORT")}
        assert str(sidecar["livenessProbe"]["httpGet"]["port"]) in moved
        return moved

    first, second = ports("host-1"), ports("host-2")
    assert len(first) == len(second) == 5
    assert not first & {"13133", "8888", "9091", "4317", "4318"}
    assert first != second


def test_the_names_of_the_sidecars_ports_are_its_own(injecting: Kubernetes) -> None:
    own = [{"name": name, "containerPort": 9000 + index} for index, name in enumerate(("metrics", "health"))]
    pod = make_pod(injecting, "jobs", "ports", containers=[{"name": "train", "image": "train", "ports": own}])
    [sidecar] = pod["spec"]["initContainers"]
    assert all(port["name"].startswith("zernel-") for port in sidecar["ports"])
    assert pod["spec"]["containers"][0]["ports"] == [{**one, "protocol": "TCP"} for one in own]


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_container_of_the_job_may_be_named_as_the_sidecar(injecting: Kubernetes, kind: str) -> None:
    spec: dict[str, Any] = {kind: [{"name": "otel-zernel", "image": "job"}]}
    pod = make_pod(injecting, "jobs", f"named-{kind.lower()}", **spec)
    assert sidecars(pod) == ["otel-zernel-sidecar"]


@pytest.mark.parametrize("fields", [{"hostPID": True}, {"shareProcessNamespace": False}, {"hostIPC": True}])
def test_a_pod_with_other_namespaces_is_accepted(injecting: Kubernetes, fields: dict[str, Any]) -> None:
    assert sidecars(make_pod(injecting, "jobs", f"namespaces-{next(iter(fields)).lower()}", **fields))


@pytest.mark.parametrize("fields", [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}])
def test_a_windows_pod_is_accepted_without_the_sidecar_and_kubectl_shows_why(
    injecting: Kubernetes, fields: dict[str, Any]
) -> None:
    body = pod_of(f"windows-{next(iter(fields)).lower()}", **fields)
    answer = injecting.client.post("/api/v1/namespaces/jobs/pods", json=body)
    assert answer.status_code == 201
    assert "initContainers" not in answer.json()["spec"]
    assert "for Windows" in answer.headers["warning"]


def test_the_level_restricted_accepts_a_job_with_the_sidecar(injecting: Kubernetes) -> None:
    injecting.make_namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    refused = injecting.client.post("/api/v1/namespaces/restricted/pods", json=pod_of("loose"))
    assert refused.status_code == 403
    assert 'container "train"' in refused.json()["message"]
    assert '"otel-zernel"' not in refused.json()["message"]
    context = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    containers = [{"name": "train", "image": "train", "securityContext": strict}]
    assert sidecars(make_pod(injecting, "restricted", "strict", securityContext=context, containers=containers))
