"""The fields that a pod gets, and the JSON patch (RFC 6902) that adds them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import yaml
from pydantic import Field, ValidationError, field_validator

from otel_zernel.errors import CannotStart
from otel_zernel.types import Section

_HIDDEN: Final = "otel-zernel: shareProcessNamespace is false in this pod, so the sidecar sees no process of the job"

Named = dict[str, Any]
"""A container or a volume of Kubernetes, with its `name`."""


class Sidecar(Section):
    """The fields for the spec of a pod."""

    initContainers: Annotated[list[Named], Field(min_length=1)]  # noqa: N815  # the name of Kubernetes
    """Native sidecars: containers with `restartPolicy: Always`. They come before the pod's own."""
    volumes: list[Named] = Field(default_factory=list)
    shareProcessNamespace: bool = False  # noqa: N815
    """Whether the containers of the pod see the processes of each other."""

    @field_validator("initContainers", "volumes")
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


def patch_of(spec: Mapping[str, Any], sidecar: Sidecar) -> Patch:
    """The changes of a pod with this `spec`. A pod with the sidecar stays as it is: the API server may ask twice."""
    if _names(spec.get("initContainers")) & _names(sidecar.initContainers):
        return Patch(())
    new_volumes = [one for one in sidecar.volumes if one["name"] not in _names(spec.get("volumes"))]
    operations = _prepended("initContainers", spec, sidecar.initContainers) + _prepended("volumes", spec, new_volumes)
    if not sidecar.shareProcessNamespace or spec.get("hostPID"):  # Kubernetes refuses both together
        return Patch(operations)
    if spec.get("shareProcessNamespace") is False:
        return Patch(operations, (_HIDDEN,))
    return Patch([*operations, {"op": "add", "path": "/spec/shareProcessNamespace", "value": True}])


def _names(items: Sequence[Named] | None) -> set[str]:
    return {item["name"] for item in items or ()}


def _prepended(field: str, spec: Mapping[str, Any], items: Sequence[Named]) -> list[dict[str, Any]]:
    """Operations that put the items before those of the pod: init containers start in order."""
    if not items:
        return []
    if not spec.get(field):
        return [{"op": "add", "path": f"/spec/{field}", "value": list(items)}]
    return [{"op": "add", "path": f"/spec/{field}/{index}", "value": item} for index, item in enumerate(items)]
