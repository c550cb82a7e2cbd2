"""The HTTPS server of the sidecar_injector extension.

Requests of Kubernetes' API server and their answers are an AdmissionReview of admission.k8s.io/v1.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator

from otel_zernel.component import Context, Extension
from otel_zernel.errors import CannotStart
from otel_zernel.types import Address, Section
from otel_zernel_extensions.sidecar_injector.config import SidecarInjectorConfig
from otel_zernel_extensions.sidecar_injector.declared import REVIEWS
from otel_zernel_extensions.sidecar_injector.fitting import Named, Spec, fitted, names
from otel_zernel_libraries.serving.api.answers import ApiError, error_answer, json_answer, json_bytes, read_body
from otel_zernel_libraries.serving.serving import serve_guarded

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


_VERSION: Final = "admission.k8s.io/v1"


Amounts = dict[str, str | int | float] | None


class _Resources(BaseModel, extra="allow"):
    requests: Amounts = None
    limits: Amounts = None


class _Item(BaseModel, extra="allow"):
    name: str = ""


class _Container(_Item):
    resources: _Resources | None = None


class _System(BaseModel, extra="allow"):
    name: str = ""


class _Spec(BaseModel, extra="allow"):
    """The fields that decide about the patch."""

    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815  # the names of Kubernetes
    volumes: list[_Item] | None = None
    imagePullSecrets: list[_Item] | None = None  # noqa: N815
    nodeSelector: dict[str, str] | None = None  # noqa: N815
    os: _System | None = None


class _Pod(BaseModel):
    spec: _Spec


class _Kind(BaseModel):
    group: str = ""
    kind: str


class _Request(BaseModel):
    uid: str
    kind: _Kind
    operation: str = "CREATE"
    object: dict[str, Any] | None = None


class _Review(BaseModel):
    version: str = Field(alias="apiVersion")
    kind: str
    request: _Request


class Reviewed(NamedTuple):
    """The answer to one review."""

    body: bytes
    injects: bool


def answer(body: bytes, sidecar: Sidecar, cpu_limit: str) -> Reviewed:
    """The answer to a request: always allowed, with a patch for a new pod. Raises `ApiError` for any other body."""
    request = _parse(body)
    patch = Patch(())
    if request.kind == _Kind(kind="Pod") and request.operation == "CREATE":
        patch = patch_of(_pod(request.object).spec.model_dump(), sidecar, cpu_limit, request.uid)
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch.operations:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json_bytes(patch.operations)).decode()}
    if patch.warnings:
        response["warnings"] = list(patch.warnings)
    review = {"apiVersion": _VERSION, "kind": "AdmissionReview", "response": response}
    return Reviewed(json_bytes(review), bool(patch.operations))


def _parse(body: bytes) -> _Request:
    try:
        review = _Review.model_validate(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"not an AdmissionReview: {_first(error)}") from error
    if (review.version, review.kind) != (_VERSION, "AdmissionReview"):
        raise ApiError(400, f"only AdmissionReview of {_VERSION} is supported")
    return review.request


def _pod(value: dict[str, Any] | None) -> _Pod:
    try:
        return _Pod.model_validate(value)
    except ValidationError as error:
        raise ApiError(400, f"not a pod: {_first(error)}") from error


def _first(error: Exception) -> str:
    """The first mistake, without the input: a pod may have secrets in its environment."""
    if not isinstance(error, ValidationError):
        return "the body is not JSON"
    mistake = error.errors(include_input=False)[0]
    return f"{'.'.join(map(str, mistake['loc']))}: {mistake['msg']}"


_PATH: Final = "/mutate"
_LARGEST: Final = 1 << 23
"""Bytes of a request. The API server accepts objects of up to 3 MiB."""


class SidecarInjectorExtension(Extension):
    """Answers reviews of new pods with a patch that adds the sidecar."""

    Config = SidecarInjectorConfig
    stability = "beta"
    works_alone = True
    config: SidecarInjectorConfig

    def __init__(self, config: SidecarInjectorConfig, context: Context) -> None:
        super().__init__(config, context)
        self.address: Address | None = None
        """The address that it listens on, while it is entered."""
        self._reviews = context.meter.create_counter(*REVIEWS.counter)

    async def __aenter__(self) -> Self:
        config = self.config
        sidecar = await asyncio.to_thread(read_sidecar, config.sidecar, f"{self.context.path}::sidecar")
        server = serve_guarded(partial(self._answer, sidecar), config.endpoint, self.context, tls=config.tls, auth=None)
        self.address = await self._stack.enter_async_context(server)
        self.context.logger.info("Serving the webhook on https://%s%s", self.address, _PATH)
        return self

    async def _answer(self, sidecar: Sidecar, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        try:
            if scope["path"] != _PATH:
                raise ApiError(404, f"the webhook is {_PATH}")
            if scope["method"] != "POST":
                raise ApiError(405, "use POST", [(b"allow", b"POST")])
            await self._review(sidecar, receive, send)
        except ApiError as error:
            self._reviews.add(1, {"outcome": "rejected"})
            await error_answer(send, error.status, str(error), error.headers)

    async def _review(self, sidecar: Sidecar, receive: Any, send: Any) -> None:
        body = await read_body(receive, _LARGEST)
        # A large pod takes longer than 10 ms.
        reviewed = await asyncio.to_thread(answer, body, sidecar, self.config.cpu_limit)
        self._reviews.add(1, {"outcome": "injected" if reviewed.injects else "unchanged"})
        await json_answer(send, reviewed.body)
