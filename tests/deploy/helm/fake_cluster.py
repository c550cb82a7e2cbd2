"""An API server with a few objects, for what Helm looks up. It takes no changes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

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
    answers = {**dict(_discovery()), **{_path(one): one for one in objects}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(missing if answer is None else answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


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
