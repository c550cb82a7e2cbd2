"""Installs the chart in a real Kubernetes, and runs the webhook as a node would."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from tests.collectors import running_collector
from tests.deploy.helm.rendering import CHART, program
from tests.free_ports import free_port
from tests.interop.installed import miss
from tests.interop.kubernetes import Kubernetes, Object
from tests.waiting import wait_for

LABEL = "otel-zernel/inject"
SERVICE = "run-otel-zernel-injector"


def install(
    kubernetes: Kubernetes,
    namespace: str,
    values: str,
    changes: Mapping[str, str] | None = None,
    *,
    name: str = "run",
    helm: str = "4",
    force: bool = False,
) -> None:
    """Installs or upgrades a release. `changes` are values for `--set-json`.

    `force` changes fields that another program has set, too. Helm 3 always does.
    """
    command = [str(program("helm", helm)), "upgrade", "--install", name, str(CHART), "--namespace", namespace]
    command += [f"--kubeconfig={kubernetes.kubeconfig}", f"--values={CHART / 'ci' / f'{values}-values.yaml'}"]
    command += ["--force-conflicts"] if force and helm != "3" else []
    for key, value in (changes or {}).items():
        command += ["--set-json", f"{key}={value}"]
    environ = {**os.environ, "HOME": str(kubernetes.folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr


def pod_of(name: str, label: str = LABEL, **spec: Any) -> Object:
    """A pod with the label of the webhook."""
    containers = [{"name": "train", "image": "train"}]
    return {"metadata": {"name": name, "labels": {label: "true"}}, "spec": {"containers": containers, **spec}}


def make_pod(kubernetes: Kubernetes, namespace: str, name: str, label: str = LABEL, **spec: Any) -> Object:
    """A new pod with the label, as the API server stores it."""
    return kubernetes.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod_of(name, label, **spec))


def sidecars(pod: Object) -> list[str]:
    """The names of the pod's native sidecars."""
    return [one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]


def own_address() -> str:
    """An address of this machine by which the API server finds a pod: Kubernetes takes none of localhost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            miss("this machine has no address besides 127.0.0.1")
        return str(probe.getsockname()[0])


@contextmanager
def webhook(kubernetes: Kubernetes, namespace: str, folder: Path) -> Iterator[None]:
    """A pod of the injector's Deployment with its volumes as they are now, and the only one behind its service."""
    folder.mkdir()
    port, health = free_port(), free_port()
    texts = kubernetes.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/run-otel-zernel")["data"]
    for file, content in kubernetes.files(namespace, SERVICE).items():
        (folder / file).write_bytes(content)
    (folder / "injected.yaml").write_text(texts["injected.yaml"])
    config = yaml.safe_load(texts["injector.yaml"])
    injector = config["extensions"]["sidecar_injector"]
    injector["endpoint"] = f"{own_address()}:{port}"
    injector["sidecar"] = str(folder / "injected.yaml")
    injector["tls"] |= {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}
    config["extensions"]["health_check"]["endpoint"] = f"127.0.0.1:{health}"
    config["service"]["telemetry"] = {"metrics": {"level": "none"}}
    with running_collector(folder, config) as running:
        wait_for(lambda: _answers(health), "the webhook runs")
        publish(kubernetes, namespace, SERVICE, port)
        yield
    assert running.process.returncode == 0, running.log


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def publish(kubernetes: Kubernetes, namespace: str, service: str, port: int) -> None:
    """Makes a port of this machine the only endpoint of a service, as the controller of endpoints does."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    body = {
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
    }
    known = kubernetes.client.get(f"{path}/{service}").status_code == 200
    kubernetes.call("PATCH" if known else "POST", f"{path}/{service}" if known else path, body)


def until_injected(kubernetes: Kubernetes, namespace: str, label: str = LABEL) -> None:
    """Returns when new pods get the sidecar: the API server reads a changed webhook after a moment."""

    def is_injected() -> bool:
        return bool(sidecars(make_pod(kubernetes, namespace, f"first-{time.time_ns()}", label)))

    wait_for(is_injected, "new pods get the sidecar")
