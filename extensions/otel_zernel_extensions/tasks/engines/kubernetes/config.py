"""The configuration of the engine of Kubernetes."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from otel_zernel.types import PositiveDuration, ReadableFile, Section

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A DNS label (RFC 1123)."""


def _job(template: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = sorted(set(template) - {"metadata", "spec"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a part of the template; write metadata and spec of a Job")
    for path in (("metadata",), ("spec",), ("spec", "template"), ("spec", "template", "spec")):
        if not isinstance(_inner(template, path), Mapping):
            raise ValueError(f"{'.'.join(path)} must be a mapping, as in a Job")
    containers = _inner(template, ("spec", "template", "spec")).get("containers", [])
    if not isinstance(containers, list) or not all(isinstance(container, Mapping) for container in containers):
        raise ValueError("spec.template.spec.containers must be a list of containers, as in a Job")
    return template


def _inner(template: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    part: Any = template
    for key in path:
        part = part.get(key) or {}
    return part


class KubernetesConfig(Section):
    """The cluster, and the Jobs that run the tasks."""

    kubeconfig: Annotated[str | None, ReadableFile()] = None
    """A kubeconfig file. By default the service account of the collector's pod is used."""
    kube_context: str | None = None
    """A context of the kubeconfig file, in place of its current one."""
    namespace: Annotated[str | None, Field(pattern=_LABEL)] = None
    """The namespace of the Jobs. By default that of the collector's pod, or of the context."""
    instance: Annotated[str, Field(pattern=_LABEL)] = "default"
    """The label by which this collector finds its Jobs. Give each collector in a namespace its own."""
    image: Annotated[str | None, Field(min_length=1)] = None
    """The image of the tasks. Required, unless `job_template` has a container named `task` with an image."""
    service_account: str | None = None
    """The service account of the tasks. Without one, the pods get no token of Kubernetes."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource that a task's `gpus` count."""
    job_template: Annotated[Mapping[str, Any], AfterValidator(_job)] = {}
    """`metadata` and `spec` of a Job. The task's command, environment and limits are merged into it."""
    request_timeout: PositiveDuration = 10.0
    """Seconds for one request to the API server."""
