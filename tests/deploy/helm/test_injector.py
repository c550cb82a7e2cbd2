"""The webhook that the chart installs answers the API server, with the certificate that the chart makes."""

import base64
import os
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.helm.pods import environment
from tests.deploy.helm.rendering import Manifest, only, render_mode
from tests.deploy.helm.test_running import end_as_the_kubelet_does, free_address, until_serving
from tests.deploy.image.containers import Container, running
from tests.extensions.sidecar_injector.test_injector import JOB, patched, review


def of_the_injector(manifests: Iterable[Manifest], kind: str) -> Manifest:
    (found,) = (
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and manifest["metadata"]["name"].endswith("-injector")
    )
    return found


def as_volume(folder: Path, files: dict[str, bytes], mode: int) -> Path:
    """A volume as the kubelet makes it for a pod with `fsGroup: 10001`."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.write_bytes(content)
        path.chmod(mode)
    for path in (folder, *folder.iterdir()):
        os.chown(path, 0, 10001)
    return folder


def webhook(manifests: list[Manifest], ip: str, folder: Path) -> Container:
    """The container of the injector's Deployment with its volumes."""
    spec = of_the_injector(manifests, "Deployment")["spec"]["template"]["spec"]
    (one,) = spec["containers"]
    (secret,) = (volume["secret"] for volume in spec["volumes"] if "secret" in volume)
    texts = {name: text.encode() for name, text in only(manifests, "ConfigMap")["data"].items()}
    pair = {name: base64.b64decode(text) for name, text in of_the_injector(manifests, "Secret")["data"].items()}
    volumes = {
        "sidecar": as_volume(folder / "sidecar", texts, 0o644),
        "certificate": as_volume(folder / "certificate", pair, secret["defaultMode"]),
    }
    mounts = {Path(mount["mountPath"]): volumes[mount["name"]] for mount in one["volumeMounts"]}
    return Container(one["args"], spec["securityContext"]["runAsUser"], env=environment(one, ip), mounts=mounts)


def ask(client_config: dict[str, Any], ip: str, spec: Manifest) -> Any:
    """The response to the review of a pod. The certificate must be valid for the service, by `caBundle` alone."""
    service = client_config["service"]
    authority = ssl.create_default_context(cadata=base64.b64decode(client_config["caBundle"]).decode())
    host = f"{service['name']}.{service['namespace']}.svc"
    with httpx.Client(verify=authority, trust_env=False, timeout=30) as client:
        url = f"https://{ip}:9443{service['path']}"
        got = client.post(url, json=review(spec), headers={"Host": host}, extensions={"sni_hostname": host})
    return got.raise_for_status().json()["response"]


def test_a_new_pod_gets_the_charts_sidecar(root: Path, tmp_path: Path) -> None:
    manifests, ip = render_mode("sidecar-injector"), free_address()
    with running(webhook(manifests, ip, tmp_path), root, tmp_path / "bundle") as process:
        until_serving(process, f"http://{ip}:13133/", "Server available")
        (hook,) = of_the_injector(manifests, "MutatingWebhookConfiguration")["webhooks"]
        response = ask(hook["clientConfig"], ip, JOB)
        assert end_as_the_kubelet_does(process, 30)[0] == 0
    assert response["allowed"] is True
    sidecar = yaml.safe_load(only(manifests, "ConfigMap")["data"]["sidecar.yaml"])
    spec = patched(JOB, yaml.safe_load(base64.b64decode(response["patch"])))
    assert spec["initContainers"] == sidecar["initContainers"]  # the pod limits nothing and has no hostNetwork
    assert spec["containers"] == JOB["containers"]
    assert [one["name"] for one in sidecar["volumes"]] == [
        "tmp-otel-zernel",
        "no-token-otel-zernel",
        "podinfo-otel-zernel",
    ]
    assert spec["volumes"] == [*sidecar["volumes"], *JOB.get("volumes", [])]
