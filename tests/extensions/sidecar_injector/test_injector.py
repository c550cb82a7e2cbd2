"""The webhook answers a real API server's requests over TLS: pods get the sidecar once, and nothing else changes."""

import base64
import copy
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context
from otel_zernel_extensions.sidecar_injector import SidecarInjectorExtension
from otel_zernel_extensions.sidecar_injector.config import SidecarInjectorConfig
from otel_zernel_extensions.sidecar_injector.fitting import quantity
from tests.exporters.otlp.certificates import Authority

SIDECAR: dict[str, Any] = {
    "shareProcessNamespace": True,
    "initContainers": [
        {
            "name": "otel-zernel",
            "restartPolicy": "Always",
            "image": "otel-zernel",
            "env": [{"name": "OTHER", "value": "x"}, {"name": "HEALTH_PORT", "value": "13133"}],
            "ports": [{"name": "zernel-health", "containerPort": 13133}],
            "startupProbe": {"httpGet": {"path": "/", "port": "zernel-health"}},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        }
    ],
    "volumes": [{"name": "tmp-otel-zernel", "emptyDir": {}}],
    "imagePullSecrets": [{"name": "registry"}],
}
PORTS = {"HEALTH_PORT": 13133, "PAGE_PORT": 9091}
JOB: dict[str, Any] = {"containers": [{"name": "train", "image": "pytorch", "env": [{"name": "TOKEN", "value": "s3"}]}]}


def review(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A request as the API server sends it for a new pod (admission.k8s.io/v1)."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "training",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:job-controller",
            "groups": ["system:authenticated"],
        },
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "train-"}, "spec": spec},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request | changes}


def patched(spec: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """The spec after the patch: `add` of RFC 6902 to a member of an object, or before an index of a list."""
    result = copy.deepcopy({"spec": spec})
    for operation in operations:
        assert operation["op"] == "add"
        target: Any = result
        *parents, last = operation["path"].removeprefix("/").split("/")
        for parent in parents:
            target = target[parent]
        if isinstance(target, list):
            target.insert(int(last), operation["value"])
        else:
            target[last] = operation["value"]
    return result["spec"]


class Webhook:
    """A client that trusts the authority, as the API server does by `caBundle`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.post("/mutate?timeout=5s", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: dict[str, Any] = found["response"]
        assert response["allowed"] is True
        return response

    async def operations(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        operations: list[dict[str, Any]] = json.loads(base64.b64decode((await self.post(body))["patch"]))
        return operations

    async def after(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The spec that the API server stores."""
        response = await self.post(review(spec))
        if "patch" not in response:
            return spec
        assert response["patchType"] == "JSONPatch"
        return patched(spec, json.loads(base64.b64decode(response["patch"])))


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump(SIDECAR | {"ports": PORTS}))
    tls = {"cert_file": issued.cert_file, "key_file": issued.key_file}
    config = SidecarInjectorConfig.model_validate({"endpoint": "127.0.0.1:0", "sidecar": str(file), "tls": tls})
    async with SidecarInjectorExtension(config, make_context("extensions", "sidecar_injector")) as extension:
        context = ssl.create_default_context(cafile=authority.ca_file)
        async with httpx.AsyncClient(base_url=f"https://{extension.address}", verify=context) as client:
            yield Webhook(client)


async def test_a_new_pod_gets_the_sidecar_and_keeps_its_own_fields(webhook: Webhook) -> None:
    assert await webhook.after(JOB) == {**JOB, **SIDECAR}


async def test_the_sidecar_starts_before_the_pods_own_init_containers(webhook: Webhook) -> None:
    own = {**JOB, "initContainers": [{"name": "fetch"}], "volumes": [{"name": "data"}]}
    spec = await webhook.after(own)
    assert [one["name"] for one in spec["initContainers"]] == ["otel-zernel", "fetch"]
    assert [one["name"] for one in spec["volumes"]] == ["tmp-otel-zernel", "data"]


async def test_a_second_review_changes_nothing(webhook: Webhook) -> None:
    spec = await webhook.after(JOB)
    assert "patch" not in await webhook.post(review(spec))


async def test_a_pod_with_the_hosts_pids_gets_no_shared_process_namespace(webhook: Webhook) -> None:
    spec = await webhook.after({**JOB, "hostPID": True})
    assert "shareProcessNamespace" not in spec
    assert spec["initContainers"] == SIDECAR["initContainers"]


async def test_a_pod_that_hides_its_processes_keeps_that_and_its_user_is_warned(webhook: Webhook) -> None:
    hidden = {**JOB, "shareProcessNamespace": False}
    assert (await webhook.after(hidden))["shareProcessNamespace"] is False
    (warning,) = (await webhook.post(review(hidden)))["warnings"]
    assert "shareProcessNamespace is false" in warning


def resources(cpu: str, memory: str, **fields: Any) -> dict[str, Any]:
    return {"limits": {"cpu": cpu, "memory": memory}, **fields}


async def test_a_container_of_the_job_may_have_the_sidecars_name(webhook: Webhook) -> None:
    spec = await webhook.after({"containers": [{"name": "otel-zernel", "image": "job"}]})
    assert [one["name"] for one in spec["initContainers"]] == ["otel-zernel-sidecar"]
    assert await webhook.after(spec) == spec


async def test_an_init_container_of_the_sidecars_name_is_no_sidecar(webhook: Webhook) -> None:
    spec = await webhook.after({**JOB, "initContainers": [{"name": "otel-zernel", "image": "job"}]})
    assert [one["name"] for one in spec["initContainers"]] == ["otel-zernel-sidecar", "otel-zernel"]


@pytest.mark.parametrize("windows", [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}])
async def test_a_windows_pod_starts_without_the_sidecar_and_its_user_is_warned(
    webhook: Webhook, windows: dict[str, Any]
) -> None:
    response = await webhook.post(review({**JOB, **windows}))
    assert "patch" not in response
    assert "for Windows" in response["warnings"][0]


async def test_a_guaranteed_pod_stays_guaranteed(webhook: Webhook) -> None:
    job = {"name": "train", "resources": resources("8", "64Gi", requests={"cpu": "8000m"})}
    fetch = {"name": "fetch", "resources": resources("1", "1G")}
    spec = await webhook.after({"containers": [job], "initContainers": [fetch]})
    sidecar = spec["initContainers"][0]["resources"]
    assert sidecar["requests"] == sidecar["limits"] == {"cpu": "500m", "memory": "512Mi"}
    assert spec["containers"] == [job]


async def test_a_pod_with_limits_passes_a_quota_on_limits_and_stays_burstable(webhook: Webhook) -> None:
    job = {"name": "train", "resources": resources("8", "64Gi", requests={"cpu": "1"})}
    sidecar = (await webhook.after({"containers": [job]}))["initContainers"][0]["resources"]
    assert sidecar == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}}


@pytest.mark.parametrize(
    "own", [{}, {"requests": {"cpu": "1"}}, {"limits": {"memory": "1Gi"}}, {"limits": {"nvidia.com/gpu": 1}}]
)
async def test_a_pod_without_cpu_limits_gets_none_for_the_sidecar(webhook: Webhook, own: dict[str, Any]) -> None:
    spec = await webhook.after({"containers": [{"name": "train", "resources": own}]})
    assert spec["initContainers"][0]["resources"] == SIDECAR["initContainers"][0]["resources"]


async def test_with_limits_of_the_whole_pod_the_sidecar_has_none(webhook: Webhook) -> None:
    spec = {"resources": resources("8", "64Gi"), "containers": [{"name": "a", "resources": resources("8", "64Gi")}]}
    assert "resources" not in (await webhook.after(spec))["initContainers"][0]


async def test_the_ports_of_a_pod_on_the_network_of_its_node_move_and_are_not_reserved(webhook: Webhook) -> None:
    def numbers(spec: dict[str, Any]) -> list[int]:
        (container,) = spec["initContainers"]
        assert "ports" not in container
        assert container["startupProbe"]["httpGet"]["port"] == int(container["env"][1]["value"])
        assert [variable["name"] for variable in container["env"]] == ["OTHER", "HEALTH_PORT", "PAGE_PORT"]
        return [int(variable["value"]) for variable in container["env"][1:]]

    spec = {**JOB, "hostNetwork": True}
    first = numbers(patched(spec, await webhook.operations(review(spec, uid="1"))))
    second = numbers(patched(spec, await webhook.operations(review(spec, uid="2"))))
    assert len({*first, *second}) == 4
    assert all(20_000 <= port < 29_000 for port in (*first, *second))


async def test_secrets_for_the_image_reach_the_pod_once(webhook: Webhook) -> None:
    spec = await webhook.after({**JOB, "imagePullSecrets": [{"name": "own"}]})
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "own"}]
    spec = await webhook.after({**JOB, "imagePullSecrets": [{"name": "registry"}]})
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500m", 1 / 2), ("2", 2), ("1.5Gi", 3 << 29), ("1e3", 1000), ("12E", 12 * 10**18), ("1E2", 100), ("0.1", 1 / 10)],
)
def test_amounts_are_read_as_kubernetes_reads_them(text: str, amount: float) -> None:
    assert float(quantity(text)) == amount


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
    ],
)
async def test_other_objects_and_operations_stay_as_they_are(webhook: Webhook, changes: dict[str, Any]) -> None:
    assert "patch" not in await webhook.post(review(JOB, **changes))


async def test_the_answer_has_the_uid_of_its_request(webhook: Webhook) -> None:
    assert (await webhook.post(review(JOB, uid="7")))["uid"] == "7"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "not an AdmissionReview: the body is not JSON"),
        (b"[]", "not an AdmissionReview: "),
        (json.dumps(review(JOB) | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(), "only AdmissionReview of"),
        (json.dumps(review({"volumes": "s3cret"})).encode(), "not a pod: spec.volumes: "),
        (json.dumps(review(JOB, object=None)).encode(), "not a pod: "),
        (b"[" * 200_000, "not an AdmissionReview: "),
    ],
)
async def test_another_body_is_refused_in_one_sentence_without_its_values(
    webhook: Webhook, body: bytes, sentence: str
) -> None:
    answer = await webhook.client.post("/mutate", content=body)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]
    assert "s3cret" not in answer.text


async def test_only_posts_to_its_path_are_answered(webhook: Webhook) -> None:
    assert (await webhook.client.post("/", json=review(JOB))).status_code == 404
    assert (await webhook.client.get("/mutate")).status_code == 405


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("initContainers: []", "initContainers: List should have at least 1 item"),
        ("containers: []", "initContainers: Field required"),
        ("initContainers: [{image: x}]", "each item needs a name"),
        ("[", "is not YAML"),
        (None, "No such file"),
    ],
)
async def test_a_wrong_sidecar_is_found_at_the_start(tmp_path: Path, text: str | None, sentence: str) -> None:
    file = tmp_path / "sidecar.yaml"
    if text is not None:
        file.write_text(text)
    config = {"sidecar": str(file), "tls": {"cert_pem": "x", "key_pem": "x"}, "endpoint": "127.0.0.1:0"}
    extension = SidecarInjectorExtension(
        SidecarInjectorConfig.model_validate(config), make_context("extensions", "sidecar_injector")
    )
    with pytest.raises(CannotStart, match="extensions::sidecar_injector::sidecar") as raised:
        await extension.__aenter__()
    assert sentence in str(raised.value)
