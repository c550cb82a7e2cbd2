"""The fields that a pod gets, and the JSON patch (RFC 6902) that adds them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import yaml
from pydantic import Field, ValidationError, field_validator

from otel_zernel.errors import CannotStart
from otel_zernel.types import Section
from otel_zernel_extensions.sidecar_injector.fitting import Named, Spec, fitted, names

_HIDDEN: Final = "otel-zernel: shareProcessNamespace is false in this pod, so the sidecar sees no process of the job"
_WINDOWS: Final = "otel-zernel: this pod is for Windows, and the sidecar runs on Linux only, so the pod gets none"
Port = Annotated[int, Field(ge=1, le=65_535)]


class Sidecar(Section):
    """The fields for the spec of a pod."""

    initContainers: Annotated[list[Named], Field(min_length=1)]  # noqa: N815  # the name of Kubernetes
    """Native sidecars: containers with `restartPolicy: Always`. They come before the pod's own."""
    volumes: list[Named] = Field(default_factory=list)
    imagePullSecrets: list[Named] = Field(default_factory=list)  # noqa: N815
    """Secrets in the namespace of the job, for the image of the sidecar."""
    shareProcessNamespace: bool = False  # noqa: N815
    """Whether the containers of the pod see the processes of each other."""
    ports: dict[str, Port] = Field(default_factory=dict)
    """Environment variables that change a port of the containers, and its default. Pods with `hostNetwork` get them."""

    @field_validator("initContainers", "volumes", "imagePullSecrets")
    @classmethod
    def _has_names(cls, items: list[Named]) -> list[Named]:
        if not all(isinstance(item.get("name"), str) for item in items):
            raise ValueError("each item needs a name")
        return items


class Patch(NamedTuple):
    """The changes of one pod. Without operations, the pod stays as it is."""

    operations: Sequence[Mapping[str, Any]]
    warnings: Sequence[str] = ()


def read_sidecar(path: str, setting: str) -> Sidecar:
    """Reads the YAML file. Raises `CannotStart`, which names the setting and the mistake."""
    try:
        return Sidecar.model_validate(yaml.safe_load(Path(path).read_text("utf-8")))
    except OSError as error:
        raise CannotStart(f"{setting}: cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CannotStart(f"{setting}: {path} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = "::".join(("sidecar", *map(str, first["loc"])))
        raise CannotStart(f"{setting}: {path} is no sidecar: {place}: {first['msg']}") from error


def patch_of(spec: Spec, sidecar: Sidecar, cpu_limit: str, seed: str) -> Patch:
    """The changes of a pod with this `spec`. A pod with the sidecar stays as it is: the API server may ask twice."""
    if _has_sidecar(spec, sidecar):
        return Patch(())
    if _is_for_windows(spec):
        return Patch((), (_WINDOWS,))
    containers = fitted(sidecar.initContainers, spec, sidecar.ports, cpu_limit, seed)
    operations = [
        *_prepended("initContainers", spec, containers),
        *_prepended("volumes", spec, _missing(sidecar.volumes, spec.get("volumes"))),
        *_prepended("imagePullSecrets", spec, _missing(sidecar.imagePullSecrets, spec.get("imagePullSecrets"))),
    ]
    if not sidecar.shareProcessNamespace or spec.get("hostPID"):  # Kubernetes refuses both together
        return Patch(operations)
    if spec.get("shareProcessNamespace") is False:
        return Patch(operations, (_HIDDEN,))
    return Patch([*operations, {"op": "add", "path": "/spec/shareProcessNamespace", "value": True}])


def _has_sidecar(spec: Spec, sidecar: Sidecar) -> bool:
    """A job may have a container of the same name: only a native sidecar counts."""
    own = {item["name"] for item in spec.get("initContainers") or () if item.get("restartPolicy") == "Always"}
    return any(own.intersection(names(container["name"])) for container in sidecar.initContainers)


def _is_for_windows(spec: Spec) -> bool:
    selected = (spec.get("nodeSelector") or {}).get("kubernetes.io/os")
    return "windows" in ((spec.get("os") or {}).get("name"), selected)


def _missing(items: Sequence[Named], present: Sequence[Named] | None) -> list[Named]:
    """The items whose names are not present."""
    have = {item.get("name") for item in present or ()}
    return [item for item in items if item["name"] not in have]


def _prepended(field: str, spec: Spec, items: Sequence[Named]) -> list[dict[str, Any]]:
    """Operations that put the items before those of the pod: init containers start in order."""
    if not items:
        return []
    if not spec.get(field):
        return [{"op": "add", "path": f"/spec/{field}", "value": list(items)}]
    return [{"op": "add", "path": f"/spec/{field}/{index}", "value": item} for index, item in enumerate(items)]
