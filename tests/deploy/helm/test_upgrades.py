"""An upgrade keeps what the cluster has: the certificate of the webhook, and the replicas of an autoscaled gateway."""

import base64
import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from tests.answering import answering
from tests.deploy.helm.rendering import CHART, HELMS, Manifest, only, render, render_mode
from tests.deploy.helm.test_injector import of_the_injector

_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "v1": {"Secret": "secrets"},
    "apps/v1": {"Deployment": "deployments", "StatefulSet": "statefulsets"},
    "admissionregistration.k8s.io/v1": {"MutatingWebhookConfiguration": "mutatingwebhookconfigurations"},
}
"""The names in paths by version and kind."""
_OF_CLUSTER: Final = ("MutatingWebhookConfiguration",)
"""Kinds without a namespace."""


@contextmanager
def cluster(objects: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The URL of a server with the objects."""
    answers = {**dict(_discovery()), **{_path(item): item for item in objects}}

    def answer(path: str, _body: bytes) -> tuple[int, bytes]:
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        found = answers.get(path.partition("?")[0])
        return (404, json.dumps(missing).encode()) if found is None else (200, json.dumps(found).encode())

    with answering(answer, content_type="application/json") as port:
        yield f"http://127.0.0.1:{port}"


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _path(manifest: Mapping[str, Any]) -> str:
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    namespace = "" if kind in _OF_CLUSTER else f"/namespaces/{metadata['namespace']}"
    return f"{_root(version)}{namespace}/{_GROUPS[version][kind]}/{metadata['name']}"


def _discovery() -> Iterator[tuple[str, Any]]:
    """The answers that describe the API."""
    groups = []
    for version, kinds in _GROUPS.items():
        resources = [
            {"name": name, "singularName": "", "namespaced": kind not in _OF_CLUSTER, "kind": kind, "verbs": ["get"]}
            for kind, name in kinds.items()
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        yield _root(version), listed
        if "/" in version:
            preferred = {"groupVersion": version, "version": "v1"}
            groups.append({"name": version.partition("/")[0], "versions": [preferred], "preferredVersion": preferred})
    yield "/version", {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}
    yield "/api", {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


INJECTOR = CHART / "ci" / "sidecar-injector-values.yaml"


def upgraded(values: Path, objects: Iterable[Manifest], changes: dict[str, str] | None = None) -> list[Manifest]:
    """The manifests of an upgrade in a cluster with the objects. Helm 4 would need a full description of the API."""
    with cluster(objects) as url:
        options = ("--dry-run=server", f"--kube-apiserver={url}")
        return render(values, changes=changes, helm="3", options=options)


def bundle(manifests: list[Manifest]) -> bytes:
    (webhook,) = of_the_injector(manifests, "MutatingWebhookConfiguration")["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


def is_trusted(secret: Manifest, authorities: bytes) -> bool:
    """Whether the API server trusts the certificate of a pod that still has this Secret."""
    (certificate,) = x509.load_pem_x509_certificates(base64.b64decode(secret["data"]["tls.crt"]))
    return any(
        certificate.issuer == authority.subject and _has_signed(authority, certificate)
        for authority in x509.load_pem_x509_certificates(authorities)
    )


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001  # one error for each kind of key
        return False
    return True


def test_an_upgrade_keeps_the_certificate_and_replaces_no_pod_of_the_webhook() -> None:
    before = render(INJECTOR)
    after = upgraded(INJECTOR, [of_the_injector(before, "Secret")])
    for kind in ("Secret", "Deployment"):
        assert of_the_injector(after, kind) == of_the_injector(before, kind)
    assert bundle(after) == bundle(before)


def test_a_certificate_near_its_end_is_renewed_while_running_pods_stay_trusted() -> None:
    before = render(INJECTOR)
    old = copy.deepcopy(of_the_injector(before, "Secret"))
    old["metadata"]["annotations"]["otel-zernel/renew-after"] = "1"
    after = upgraded(INJECTOR, [old])
    new = of_the_injector(after, "Secret")
    assert new["data"]["tls.crt"] != old["data"]["tls.crt"]
    assert is_trusted(old, bundle(after))
    assert is_trusted(new, bundle(after))
    assert bundle(upgraded(INJECTOR, [new])) == bundle(after)
    new["metadata"]["annotations"]["otel-zernel/renew-after"] = "1"
    assert not is_trusted(old, bundle(upgraded(INJECTOR, [new])))  # its pods are gone


def test_the_certificate_of_a_chart_that_kept_no_authority_stays_trusted() -> None:
    before = render(INJECTOR)
    old, webhook = (
        copy.deepcopy(of_the_injector(before, "Secret")),
        of_the_injector(before, "MutatingWebhookConfiguration"),
    )
    del old["metadata"]["annotations"], old["data"]["authority.crt"], old["data"]["ca.crt"]
    webhook["metadata"]["name"] = "run-otel-zernel-injector"
    after = upgraded(INJECTOR, [old, webhook])
    assert is_trusted(old, bundle(after))
    assert is_trusted(of_the_injector(after, "Secret"), bundle(after))


def test_a_certificate_is_renewed_when_a_third_of_its_time_is_left() -> None:
    secret = of_the_injector(render(INJECTOR, changes={"injector.certificate.days": "30"}), "Secret")
    (certificate,) = x509.load_pem_x509_certificates(base64.b64decode(secret["data"]["tls.crt"]))
    renewal = int(secret["metadata"]["annotations"]["otel-zernel/renew-after"])
    left = certificate.not_valid_after_utc.timestamp() - renewal
    assert left == pytest.approx(10 * 86_400, abs=3600)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_autoscaling_keeps_the_replicas_until_the_autoscaler_acts(kind: str) -> None:
    values = CHART / "ci" / "gateway-values.yaml"
    changes = {"autoscaling.enabled": "true", "autoscaling.minReplicas": "3"}
    if kind == "StatefulSet":
        changes["statefulset.enabled"] = "true"
    running = only(render(values, changes={**changes, "autoscaling.enabled": "false", "replicaCount": "5"}), kind)
    assert only(upgraded(values, [running], changes=changes), kind)["spec"]["replicas"] == 5
    for manifests in (upgraded(values, [], changes=changes), render(values, changes=changes)):
        assert "replicas" not in only(manifests, kind)["spec"]  # the autoscaler sets them


def test_an_autoscaler_removes_no_pod_with_a_durable_queue() -> None:
    changes = {"autoscaling__enabled": "true", "statefulset__enabled": "true"}
    scaler = only(render_mode("gateway", **changes), "HorizontalPodAutoscaler")
    assert scaler["spec"]["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}


def _names(manifests: list[Manifest]) -> set[tuple[str, str]]:
    return {
        (manifest["kind"], manifest["metadata"]["name"])
        for manifest in manifests
        if "namespace" not in manifest["metadata"]
    }


@pytest.mark.parametrize("mode", ["daemonset-api", "sidecar-injector"])
def test_releases_of_one_name_in_two_namespaces_share_no_object(mode: str) -> None:
    values = CHART / "ci" / f"{mode}-values.yaml"
    first, second = (_names(render(values, options=("--namespace", name))) for name in ("team-a", "team-b"))
    assert first
    assert not first & second


def test_namespace_and_release_stay_apart_in_the_names_of_the_cluster() -> None:
    values = CHART / "ci" / "sidecar-injector-values.yaml"
    first = _names(render(values, name="ml-zernel", options=("--namespace", "team")))
    assert not first & _names(render(values, name="zernel", options=("--namespace", "team-ml")))


def test_a_changed_limit_replaces_the_pods_of_the_webhook() -> None:
    def checksum(limit: str) -> str:
        deployment = of_the_injector(render(INJECTOR, changes={"injector.cpuLimit": f'"{limit}"'}), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/sidecar"])

    assert checksum("500m") != checksum("2")


@pytest.mark.parametrize("helm", HELMS)
def test_the_name_of_a_release_may_be_a_number(helm: str) -> None:
    manifests = render(CHART / "ci" / "gateway-values.yaml", helm=helm, name="2024")
    services = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Service"]
    assert services == ["z-2024-otel-zernel", "z-2024-otel-zernel-headless"]
    assert only(manifests, "Deployment")["metadata"]["name"] == "2024-otel-zernel"
    for manifest in manifests:
        assert all(isinstance(value, str) for value in manifest["metadata"]["labels"].values())
