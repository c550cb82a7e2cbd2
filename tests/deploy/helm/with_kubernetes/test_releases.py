"""Helm and a real API server: upgrades lose no sidecar and no replica, and releases do not collide."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tests.deploy.helm.rendering import CI, HELMS, pod_spec, render
from tests.deploy.helm.with_kubernetes.releases import install, make_pod, sidecars, until_injected, webhook
from tests.interop.kubernetes import Kubernetes, Object

pytestmark = pytest.mark.soak
LABEL = "otel-zernel/upgraded"
"""Not that of the webhook of the other tests."""


def pods_during(kubernetes: Kubernetes, namespace: str, change: Callable[[], None]) -> list[Object]:
    """The pods that are made while something changes, 50 before and 100 after it."""
    numbers, made = count(), list[Object]()

    def make(limit: int | None = None) -> None:
        while limit is None or len(made) < limit:
            made.append(make_pod(kubernetes, namespace, f"pod-{next(numbers)}", LABEL))
            if limit is None and changed.done():
                return

    with ThreadPoolExecutor() as threads:
        make(50)
        changed = threads.submit(change)
        make()
        changed.result()
    make(len(made) + 100)
    return made


@pytest.mark.parametrize("helm", HELMS)
def test_no_pod_around_an_upgrade_starts_without_the_sidecar(kubernetes: Kubernetes, tmp_path: Path, helm: str) -> None:
    namespace, jobs = f"upgraded-{helm}", f"upgraded-jobs-{helm}"
    for name in (namespace, jobs):
        kubernetes.make_namespace(name)
    secret = f"/api/v1/namespaces/{namespace}/secrets/run-otel-zernel-injector"

    def upgrade(*, force: bool = False) -> None:
        install(kubernetes, namespace, "sidecar-injector", {"injector.label": f'"{LABEL}"'}, helm=helm, force=force)

    def renew() -> None:
        """An upgrade near the end of the certificate."""
        kubernetes.call("PATCH", secret, {"metadata": {"annotations": {"otel-zernel/renew-after": "1"}}})
        upgrade(force=True)

    upgrade()
    with webhook(kubernetes, namespace, tmp_path / "old"):
        until_injected(kubernetes, jobs, LABEL)
        before = kubernetes.files(namespace, "run-otel-zernel-injector")
        for change in (upgrade, renew):
            pods = pods_during(kubernetes, jobs, change)
            assert len(pods) > 150
            assert [pod["metadata"]["name"] for pod in pods if not sidecars(pod)] == []
            is_kept = kubernetes.files(namespace, "run-otel-zernel-injector") == before
            assert is_kept is (change is upgrade)
            kubernetes.call("DELETE", f"/api/v1/namespaces/{jobs}/pods", {"gracePeriodSeconds": 0})
        with webhook(kubernetes, namespace, tmp_path / "new"):
            pods = pods_during(kubernetes, jobs, lambda: None)
            assert all(map(sidecars, pods))


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("durable", ["false", "true"])
def test_autoscaling_that_is_switched_on_keeps_the_replicas_of_a_running_gateway(
    kubernetes: Kubernetes, helm: str, durable: str
) -> None:
    namespace, kind = f"scaled-{helm}-{durable}", "statefulsets" if durable == "true" else "deployments"
    kubernetes.make_namespace(namespace)
    workload = f"/apis/apps/v1/namespaces/{namespace}/{kind}/run-otel-zernel"

    def replicas(*, force: bool = False, **changes: str) -> int:
        given = {"statefulset.enabled": durable, **{name.replace("_", "."): text for name, text in changes.items()}}
        install(kubernetes, namespace, "gateway", given, helm=helm, force=force)
        return int(kubernetes.call("GET", workload)["spec"]["replicas"])

    assert replicas(replicaCount="5") == 5
    assert replicas(autoscaling_enabled="true") == 5
    # What the autoscaler does.
    kubernetes.call("PATCH", f"{workload}/scale", {"spec": {"replicas": 7}})
    assert replicas(autoscaling_enabled="true") == 7
    assert replicas(replicaCount="3", force=True) == 3


@pytest.mark.parametrize("values", ["daemonset-api", "sidecar-injector", "gateway-scaled"])
def test_releases_of_one_name_live_in_two_namespaces(kubernetes: Kubernetes, values: str) -> None:
    for team in ("a", "b"):
        namespace = f"{values}-{team}"
        kubernetes.make_namespace(namespace)
        install(kubernetes, namespace, values)


def test_helm_4_keeps_the_certificate_of_a_release_of_helm_3(kubernetes: Kubernetes) -> None:
    kubernetes.make_namespace("helms")

    def installed(helm: str) -> dict[str, bytes]:
        install(kubernetes, "helms", "sidecar-injector", helm=helm)
        return kubernetes.files("helms", "run-otel-zernel-injector")

    assert installed("3") == installed("4")


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("values", ["daemonset-api", "sidecar-injector", "gateway"])
def test_the_name_of_a_release_may_be_a_number(kubernetes: Kubernetes, values: str, helm: str) -> None:
    namespace = f"digits-{values}-{helm}"
    kubernetes.make_namespace(namespace)
    for _ in ("an installation", "an upgrade"):
        install(kubernetes, namespace, values, name="2024", helm=helm)


OWN_PODS = [path for path in CI if not path.name.startswith("sidecar")]
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize("values", OWN_PODS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_pods_of_every_mode_need_the_level_that_the_readme_names(kubernetes: Kubernetes, values: Path) -> None:
    spec = pod_spec(render(values))
    needs_privileged = spec.get("hostPID") or any("hostPath" in volume for volume in spec["volumes"])
    path = "/api/v1/namespaces/levels/pods"
    if kubernetes.client.get("/api/v1/namespaces/levels").status_code == 404:
        kubernetes.make_namespace("levels", RESTRICTED)
    # What the test's cluster lacks, and what a StatefulSet adds.
    spec.pop("runtimeClassName", None)
    spec["serviceAccountName"] = "default"
    spec["volumes"].append({"name": "queue", "emptyDir": {}})
    body = {"metadata": {"name": "tried"}, "spec": spec}
    answer = kubernetes.client.post(path, params={"dryRun": "All"}, json=body)
    assert answer.status_code == (403 if needs_privileged else 201), answer.text
