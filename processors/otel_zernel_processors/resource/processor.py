"""The resource processor, and resource_detection, which finds where the collector runs."""

import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.batch.parsing import parse
from otel_zernel.component import Context, Logger, Processor
from otel_zernel_libraries.attributes.actions import Act, changes_by, compiled, write
from otel_zernel_libraries.attributes.config import AttributeAction
from otel_zernel_libraries.resources import change_resources, editable_holders_of, holders_of
from otel_zernel_processors.resource.config import DetectionConfig, ResourceConfig, ResourceDetectionConfig

MAX_WRITTEN: Final = 1 << 20
"""Characters of texts that `write_texts` copies for one batch. A short request can name one long text many times."""


def write_texts(batch: Batch) -> None:
    """Writes the texts of attributes into the resources of profiles. Senders may have them in the dictionary, and only
    their numbers in the resource. If they are longer than `MAX_WRITTEN` together, the
    numbers stay."""
    if "profiles" not in batch.signals:
        return
    numbers = Counter(_numbers(_pairs(holders_of(batch, "profiles"))))
    texts = batch.profiles.dictionary.string_table
    if not numbers or sum(count * len(_text(texts, number)) for number, count in numbers.items()) > MAX_WRITTEN:
        return
    for pair in _pairs(editable_holders_of(batch, "profiles")):
        _write_pair(pair, texts)


def _pairs(holders: Sequence[Any]) -> list[KeyValue]:
    return [pair for holder in holders for pair in holder.resource.attributes]


def _numbers(pairs: Iterable[KeyValue]) -> Iterator[int]:
    for pair in pairs:
        if pair.key_strindex:
            yield pair.key_strindex
        yield from _numbers_in(pair.value)


def _numbers_in(value: AnyValue) -> Iterator[int]:
    match value.WhichOneof("value"):
        case "string_value_strindex":
            yield value.string_value_strindex
        case "array_value":
            for inner in value.array_value.values:
                yield from _numbers_in(inner)
        case "kvlist_value":
            yield from _numbers(value.kvlist_value.values)


def _write_pair(pair: KeyValue, texts: Sequence[str]) -> None:
    if pair.key_strindex:
        pair.key = _text(texts, pair.key_strindex)
        pair.ClearField("key_strindex")
    _write_value(pair.value, texts)


def _write_value(value: AnyValue, texts: Sequence[str]) -> None:
    match value.WhichOneof("value"):
        case "string_value_strindex":
            value.string_value = _text(texts, value.string_value_strindex)
        case "array_value":
            for inner in value.array_value.values:
                _write_value(inner, texts)
        case "kvlist_value":
            for pair in value.kvlist_value.values:
                _write_pair(pair, texts)


def _text(texts: Sequence[str], number: int) -> str:
    """The text with this number; empty if there is none."""
    return texts[number] if 0 <= number < len(texts) else ""


Attributes = dict[str, str | int]

# host.arch of the semantic conventions, by the kernel's machine name. Other names are the same in both.
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i386": "x86",
    "i686": "x86",
    "armv7l": "arm32",
    "ppc64le": "ppc64",
}


@dataclass(frozen=True, slots=True)
class DetectionSources:
    """The environment of the collector that the detectors read."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    uname: Callable[[], platform.uname_result] = platform.uname
    machine_id: Path = Path("/etc/machine-id")
    pid: Callable[[], int] = os.getpid
    executable: str = sys.executable
    os_release: Path = Path("/etc/os-release")


def detect_env(sources: DetectionSources, logger: Logger) -> Attributes:
    """`OTEL_RESOURCE_ATTRIBUTES` (`key=value,...`, percent-encoded) and `OTEL_SERVICE_NAME`."""
    attributes: Attributes = {}
    for pair in filter(str.strip, sources.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")):
        key, equals, value = pair.partition("=")
        if key.strip() and equals:
            attributes[unquote(key.strip())] = unquote(value.strip())
        else:
            logger.warning("Ignoring a part of OTEL_RESOURCE_ATTRIBUTES that is not key=value: %s", pair)
    if service := sources.environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = service
    return attributes


def detect_host(sources: DetectionSources, logger: Logger) -> Attributes:
    """The name, architecture and operating system of the machine, and its id if that is readable."""
    uname = sources.uname()
    attributes: Attributes = {
        "host.name": uname.node,
        "host.arch": _ARCHITECTURES.get(uname.machine.lower(), uname.machine.lower()),
        "os.type": uname.system.lower(),
    }
    try:
        attributes["host.id"] = sources.machine_id.read_text().strip()
    except OSError:
        logger.debug("No host.id: cannot read %s", sources.machine_id)
    return {key: value for key, value in attributes.items() if value}


def detect_system(sources: DetectionSources, logger: Logger) -> Attributes:
    """The machine, with the attributes of `host` and a description of its operating system."""
    uname, release = sources.uname(), _os_release(sources.os_release)
    attributes: Attributes = {
        **detect_host(sources, logger),
        "os.name": release.get("NAME", ""),
        "os.version": release.get("VERSION_ID", ""),
        "os.description": f"{release.get('PRETTY_NAME', uname.system)} ({uname.system} {uname.node} {uname.release} "
        f"{uname.version} {uname.machine})",
    }
    return {key: value for key, value in attributes.items() if value}


def _os_release(path: Path) -> dict[str, str]:
    """The lines `NAME="value"` of os-release(5)."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}


def detect_process(sources: DetectionSources, logger: Logger) -> Attributes:
    """The collector's own process."""
    return {
        "process.pid": sources.pid(),
        "process.executable.name": Path(sources.executable).name,
        "process.executable.path": sources.executable,
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }


DETECTORS: Mapping[str, Callable[[DetectionSources, Logger], Attributes]] = {
    "env": detect_env,
    "system": detect_system,
    "host": detect_host,
    "process": detect_process,
}


_CACHED = 4096  # resources whose result is cached
_OF_SYSTEM = frozenset({"host.name", "os.type"})  # as in the OpenTelemetry Collector


class ResourceProcessor(Processor):
    """Adds, changes and removes resource attributes; detects those of host, process and environment."""

    Config: ClassVar[type[DetectionConfig]] = ResourceConfig
    stability = "beta"
    signals = ALL_SIGNALS

    def __init__(self, config: DetectionConfig, context: Context, sources: DetectionSources | None = None) -> None:
        super().__init__(config, context)
        self._sources = sources or DetectionSources()
        self._change = lru_cache(_CACHED)(self._apply)

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch, edited only where a resource changes."""
        write_texts(batch)
        for signal in batch.signals:
            change_resources(batch, signal, self._change)
        return (batch,)

    def _apply(self, encoded: bytes) -> Resource | None:
        """The resource after all actions; None if it does not change."""
        resource = parse(Resource, encoded)
        changes = changes_by(self._act, None, resource)
        if changes is None:
            return None
        write(resource, changes)
        return resource

    @cached_property
    def _act(self) -> Act:
        """All actions. Detection runs at the first batch: constructors must not read the environment."""
        return compiled([*self._detected(), *self._actions()])

    def _actions(self) -> Sequence[AttributeAction]:
        return self.config.attributes if isinstance(self.config, ResourceConfig) else ()

    def _detected(self) -> Iterator[AttributeAction]:
        attributes: Attributes = {}
        for name in reversed(self.config.detectors):
            detected = DETECTORS[name](self._sources, self.context.logger)
            attributes.update(self._enabled(detected) if name == "system" else detected)
        for key, value in attributes.items():
            yield AttributeAction(key=key, value=value, action="upsert" if self.config.override else "insert")

    def _enabled(self, detected: Attributes) -> Attributes:
        """The attributes of the detector `system` that are wanted."""
        switches = self.config.system.resource_attributes
        wanted = {key: switches[key].enabled if key in switches else key in _OF_SYSTEM for key in detected}
        return {key: value for key, value in detected.items() if wanted[key]}


class ResourceDetectionProcessor(ResourceProcessor):
    """Adds attributes of host, process and environment to resources."""

    Config = ResourceDetectionConfig
