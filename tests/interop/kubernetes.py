"""A real Kubernetes without nodes: etcd, the API server and some controllers. `install-kubernetes.sh` builds them."""

import base64
import json
import signal
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.exporters.otlp.certificates import Authority
from tests.free_ports import free_port
from tests.interop.installed import find_peer, installed_peer
from tests.waiting import wait_for

_VERSION: Final = "1.34.4"
_CONTROLLERS: Final = (
    *("serviceaccount", "resourcequota", "deployment", "replicaset", "statefulset", "job"),
    "horizontal-pod-autoscaler",
)
"""Without those of endpoints: a test says where the pods of a service are."""
_WAIT: Final = 90.0
Object = dict[str, Any]


class Kubernetes:
    """A running cluster, and a client that has all rights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = installed_peer(f"kubernetes-{_VERSION}", "Kubernetes", "soak")
        self._etcd_program = find_peer("etcd")
        self._etcd, self._between, self._port = free_port(), free_port(), free_port()
        self._authority = Authority(folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = self.write_kubeconfig("admin")
        self.client = httpx.Client(
            base_url=self.url,
            verify=ssl.create_default_context(cafile=self._authority.ca_file),
            headers={"authorization": "Bearer admin"},
            timeout=30,
            trust_env=False,
        )

    # The servers

    def start(self) -> None:
        url, between = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._between}"
        self._run(
            self._etcd_program,
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={between}",
            f"--initial-advertise-peer-urls={between}",
            f"--initial-cluster=default={between}",
        )
        key = rsa.generate_private_key(65537, 2048)
        self._key = self.folder / "accounts.key"
        self._key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
        (self.folder / "tokens.csv").write_text('admin,admin,admin,"system:masters"\n')
        self._certificate = self._authority.issue("localhost", "api")
        self.start_api_server()
        self._run(
            self._programs / "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(f'{name}-controller' for name in _CONTROLLERS)}",
            f"--service-account-private-key-file={self._key}",
            "--leader-elect=false",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--secure-port=0",
        )
        self._until_account("default")

    def start_api_server(self) -> None:
        """Returns when the API server is ready."""
        process = self._run(
            self._programs / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={self._certificate.cert_file}",
            f"--tls-private-key-file={self._certificate.key_file}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._key}",
            f"--service-account-key-file={self._key}",
            "--service-cluster-ip-range=10.0.0.0/16",
            # It connects to the endpoints of a service itself: no node forwards the service's address.
            "--enable-aggregator-routing=true",
        )

        def is_ready() -> bool:
            assert process.poll() is None, (self.folder / "kube-apiserver.log").read_text()[-3000:]
            try:
                return self.client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(is_ready, "the API server is ready")

    def stop_api_server(self, number: int = signal.SIGTERM) -> None:
        self._end("kube-apiserver", number)

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self._end(name, signal.SIGKILL)
        self.client.close()

    def _run(self, program: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{program.name}.log").open("ab") as log:
            process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        self._processes[program.name] = process
        return process

    def _end(self, name: str, number: int) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(_WAIT)

    # The objects

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        """The object in a successful answer. PATCH merges."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        answer = self.client.request(method, path, content=content, headers={"content-type": kind})
        assert answer.is_success, answer.text
        found: Object = answer.json()
        return found

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """A namespace in which pods can be made."""
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        self._until_account(name)

    def _until_account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_for(lambda: self.client.get(path).status_code == 200, f"{namespace} has its service account")

    def token(self, namespace: str, account: str = "default") -> str:
        """A token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.call("POST", path, {"spec": {}})["status"]["token"])

    def files(self, namespace: str, secret: str) -> dict[str, bytes]:
        """The files of a Secret."""
        data = self.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{secret}")["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}

    def write_kubeconfig(self, token: str, name: str = "admin") -> Path:
        """A kubeconfig file with a token."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {"name": "c", "cluster": {"server": self.url, "certificate-authority": self._authority.ca_file}}
            ],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path


@contextmanager
def running_kubernetes(folder: Path) -> Iterator[Kubernetes]:
    """A cluster that keeps its data in the folder. Without the programs, the test is skipped or fails."""
    kubernetes = Kubernetes(folder)
    with ExitStack() as stack:
        stack.callback(kubernetes.stop)
        kubernetes.start()
        yield kubernetes
