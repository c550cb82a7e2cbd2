"""Runs the container of rendered manifests: its arguments, environment, user, capabilities and mounts."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from subprocess import Popen
from typing import Final, NamedTuple

from otel_zernel_libraries.clients.kubernetes.credentials import SERVICE_ACCOUNT
from tests.deploy.helm.rendering import Manifest, config_text, container, pod_spec
from tests.deploy.image.containers import Container, running

NODE: Final = "gpu-node-7"


class ApiServer(NamedTuple):
    """An API server on 127.0.0.1, and the files of a service account."""

    port: int
    account: Path


@contextlib.contextmanager
def running_pod(
    manifests: Iterable[Manifest],
    ip: str,
    root: Path,
    folder: Path,
    volumes: Mapping[str, Path],
    api: ApiServer | None = None,
) -> Iterator["Popen[str]"]:
    """The process of the collector's container, on a node of the name `NODE`. `volumes` are folders by their names.

    The service account is mounted only if the pod asks for it.
    """
    manifests = list(manifests)
    one, spec = container(manifests), pod_spec(manifests)
    files = folder / "files"
    files.mkdir()
    (files / "config.yaml").write_text(config_text(manifests))
    sources = {"config": files, **volumes}
    places = {mount["name"]: Path(mount["mountPath"]) for mount in one["volumeMounts"]}
    mounted = {places[name]: source for name, source in sources.items() if name in places}
    environ = environment(one, ip)
    if api and spec["automountServiceAccountToken"]:
        mounted[SERVICE_ACCOUNT] = api.account
        environ |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    context = {**spec.get("securityContext", {}), **one["securityContext"]}
    process = Container(
        one["args"],
        user=context["runAsUser"],
        group=context["runAsGroup"],
        capabilities=context["capabilities"].get("add", []),
        env=environ,
        mounts=mounted,
        read_only=[places[mount["name"]] for mount in one["volumeMounts"] if mount.get("readOnly")],
        host_pid=spec.get("hostPID", False),
    )
    with running(process, root, folder / "bundle") as started:
        yield started


def environment(one: Manifest, ip: str) -> dict[str, str]:
    """The environment of the container, as the kubelet makes it: `$(NAME)` is an earlier variable."""
    fields = {"status.podIP": ip, "spec.nodeName": NODE, "metadata.name": "run-x", "metadata.namespace": "ml"}
    found: dict[str, str] = {}
    for variable in one["env"]:
        if "valueFrom" in variable:
            value = fields.get(variable["valueFrom"]["fieldRef"]["fieldPath"], "uid")
        else:
            value = variable["value"]
            for name, earlier in found.items():
                value = value.replace(f"$({name})", earlier)
        found[variable["name"]] = value
    return found
