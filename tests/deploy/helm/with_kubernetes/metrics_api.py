"""The metrics API that an autoscaler asks: every pod of the cluster uses almost no CPU."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

from tests.deploy.helm.with_kubernetes.releases import own_address, publish
from tests.exporters.otlp.certificates import Authority
from tests.interop.kubernetes import Kubernetes, Object, until

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
        found = kubernetes.call("GET", f"/api/v1{path.removeprefix(f'/apis/{_VERSION}')}")["items"]
        return {"kind": "PodMetricsList", "apiVersion": _VERSION, "items": [_usage(pod) for pod in found]}
    return {}  # the API server also asks for descriptions


@contextmanager
def idle_pods(kubernetes: Kubernetes, folder: Path) -> Iterator[None]:
    """Serves the metrics API to the autoscaler, by way of the API server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = _answer(kubernetes, self.path.partition("?")[0])
            body = json.dumps(answer).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer((own_address(), 0), Handler) as server:
        security = Authority(folder).issue("metrics").server_context()
        server.socket = security.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            _register(kubernetes, server.server_port)
            yield
        finally:
            server.shutdown()


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
    until(
        lambda: kubernetes.client.get(f"/apis/{_VERSION}/namespaces/metrics/pods").status_code == 200,
        "the API server passes on requests for metrics",
    )
