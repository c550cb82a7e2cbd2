"""Credentials of Kubernetes: the service account of a pod, or the part of a kubeconfig file that consists of files."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.clients.api_access import Access

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the token, the authority and the namespace of a pod."""
_LONGEST_FILE: Final = 4 << 20
_UNSUPPORTED: Final = ("exec", "auth-provider", "username", "impersonate")
"""Keys of a kubeconfig's user that would run a program, or that are not supported."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The API server, and the namespace that the credentials name."""

    access: Access
    namespace: str


def of_pod(environ: Mapping[str, str], folder: Path, setting: str) -> ClusterAccess:
    """The service account of the pod in which the collector runs. Raises `CannotStart`."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CannotStart(
            f"{setting}::kubeconfig: the collector does not run in a pod (KUBERNETES_SERVICE_HOST is not set);"
            " set kubeconfig to a file"
        )
    token, authority, namespace = (_read(folder / name, setting) for name in ("token", "ca.crt", "namespace"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ClusterAccess(
        Access(server, {"authorization": _bearer(token, folder / "token", setting)}, ca=authority),
        namespace.decode("ascii", "replace").strip(),
    )


def of_kubeconfig(file: Path, context: str | None, setting: str) -> ClusterAccess:
    """The cluster and the user of a context, by default the current one. Raises `CannotStart`."""
    key = f"{setting}::kubeconfig"
    content = _parsed(file, key)
    name = context or content.get("current-context") or ""
    chosen = _named(content, "contexts", "context", name, f"{key}: {file}")
    cluster = _named(content, "clusters", "cluster", chosen.get("cluster"), f"{key}: {file}")
    user = _named(content, "users", "user", chosen.get("user"), f"{key}: {file}")
    if unsupported := next((key for key in _UNSUPPORTED if key in user), None):
        raise CannotStart(
            f"{key}: {file} uses {unsupported}, which is not supported; use a token or a client certificate"
        )
    return ClusterAccess(_access(cluster, user, file.parent, key), str(chosen.get("namespace") or "default"))


def _access(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path, key: str) -> Access:
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise CannotStart(f"{key}: the cluster has no server; write https://host:6443")
    token = user.get("token")
    if user.get("tokenFile"):
        path = folder / str(user["tokenFile"])
        header = {"authorization": _bearer(_read(path, key), path, key)}
    else:
        header = {"authorization": f"Bearer {token}"} if token else {}
    return Access(
        server,
        header,
        proxy=cluster.get("proxy-url"),
        ca=_pem(cluster, "certificate-authority", folder, key),
        certificate=_pem(user, "client-certificate", folder, key),
        key=_pem(user, "client-key", folder, key),
        skip_verify=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name"),
    )


def _pem(section: Mapping[str, Any], name: str, folder: Path, key: str) -> bytes | None:
    """A PEM text, which is in the file itself in base64, or in a file beside it."""
    if data := section.get(f"{name}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error as error:
            raise CannotStart(f"{key}: {name}-data is not base64") from error
    return _read(folder / str(section[name]), key) if section.get(name) else None


def _parsed(file: Path, key: str) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(_read(file, key))
    except yaml.YAMLError as error:
        raise CannotStart(f"{key}: {file} is not valid YAML") from error
    if not isinstance(content, Mapping):
        raise CannotStart(f"{key}: {file} is not a kubeconfig file")
    return content


def _named(content: Mapping[str, Any], place: str, kind: str, name: object, where: str) -> Mapping[str, Any]:
    for entry in content.get(place) or ():
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(kind), Mapping):
            content_: Mapping[str, Any] = entry[kind]
            return content_
    raise CannotStart(f"{where} has no {kind} named {name!r}")


def _bearer(token: bytes, path: Path, setting: str) -> str:
    text = token.decode("ascii", "replace").strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise CannotStart(f"{setting}: {path} has no token")
    return f"Bearer {text}"


def _read(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise CannotStart(f"{setting}: cannot read {path}: {error.strerror}") from error
    if len(content) > _LONGEST_FILE:
        raise CannotStart(f"{setting}: {path} is longer than {_LONGEST_FILE >> 20} MiB")
    return content
