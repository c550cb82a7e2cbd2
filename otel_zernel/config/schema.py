"""Validates a loaded configuration into typed settings, with every mistake at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from otel_zernel.component import BOTH, ComponentConfig, Kind, Signal
from otel_zernel.config.diagnose import Finding, check
from otel_zernel.config.load import Loaded, load, nearest, nearest_source
from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.config.yaml12 import Path
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.registry import KINDS, ComponentClass, Registry
from otel_zernel.text import joined, one_line, quoted, suggestion
from otel_zernel.types import Duration, Section

SECTIONS = (*KINDS, "service")
PIPELINE_KINDS: tuple[Kind, ...] = ("receivers", "processors", "exporters")

_TYPE = re.compile(r"[a-zA-Z][0-9a-zA-Z_]{0,62}")
_MAX_NAME = 1024

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ComponentSettings:
    """One configured component."""

    kind: Kind
    id: str
    """`type` or `type/name`."""
    type: str
    cls: ComponentClass
    config: ComponentConfig


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """One pipeline: ids of its components, in order."""

    id: str
    receivers: tuple[str, ...]
    processors: tuple[str, ...]
    exporters: tuple[str, ...]
    signals: frozenset[Signal]


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid configuration. Components are all configured ones, used or not, by id."""

    receivers: Mapping[str, ComponentSettings]
    processors: Mapping[str, ComponentSettings]
    exporters: Mapping[str, ComponentSettings]
    extensions: Mapping[str, ComponentSettings]
    pipelines: Mapping[str, PipelineSettings]
    extensions_enabled: tuple[str, ...]
    telemetry: TelemetrySettings
    shutdown_timeout: float
    """Seconds."""
    warnings: tuple[str, ...]


class PipelineSection(Section):
    """`service::pipelines::<id>`."""

    receivers: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()


class ServiceSection(Section):
    """`service`, its pipelines not yet looked into."""

    pipelines: dict[str, Any] = Field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    telemetry: TelemetrySettings = TelemetrySettings()
    shutdown_timeout: Duration = 20.0
    """The time to drain in when the collector is told to stop."""


def read_settings(
    uris: Sequence[str], overrides: Sequence[str], environ: Mapping[str, str], registry: Registry
) -> Settings:
    """`load` and `validate` in one. Raises `ConfigError` with every mistake."""
    return validate(load(uris, overrides, environ), registry, environ)


def validate(loaded: Loaded, registry: Registry, environ: Mapping[str, str]) -> Settings:
    """Typed settings. `environ` is what components take fall-back defaults from.

    Raises `ConfigError` with every mistake, in the file's order.
    """
    validation = _Validation(loaded, registry, environ)
    settings = validation.settings()
    if validation.findings:
        unset = [Problem("", warning) for warning in loaded.warnings]  # the likeliest cause of what is missing
        raise ConfigError([_problem(one, loaded.sources) for one in validation.in_order()] + unset)
    return settings


class _Validation:
    """One walk over a configuration. Goes on after a mistake, to find the others."""

    def __init__(self, loaded: Loaded, registry: Registry, environ: Mapping[str, str]) -> None:
        self._loaded = loaded
        self._registry = registry
        self._context = {"environ": environ}
        self._classes: dict[tuple[Kind, str], ComponentClass] = {}
        self._used: dict[tuple[Kind, str], None] = {}
        self.findings: list[Finding] = []

    def in_order(self) -> list[Finding]:
        """The findings as their places come in the files."""
        position = {path: index for index, path in enumerate(self._loaded.sources)}

        def first(finding: Finding) -> int:
            return position.get(nearest(finding.at, position) or (), len(position))

        return sorted(dict.fromkeys(self.findings), key=first)

    def settings(self) -> Settings:
        """What the tree says; of no use if there are findings."""
        for section in self._loaded.tree:
            if section not in SECTIONS:
                self._find((section,), f"unknown section{suggestion(section, SECTIONS, 'sections')}")
        components = {kind: self._section(kind) for kind in KINDS}
        tree = self._mapping(("service",), self._loaded.tree.get("service"))
        checked = self._check(ServiceSection, tree, ("service",))
        service = checked or ServiceSection()
        listed = checked.extensions if checked else tree.get("extensions")
        extensions = self._references("extensions", listed, ("service", "extensions"), ("service", "extensions"))
        pipelines = self._pipelines(tree.get("pipelines"))
        self._check_installed()
        return Settings(
            **components,
            pipelines=pipelines,
            extensions_enabled=extensions,
            telemetry=service.telemetry,
            shutdown_timeout=service.shutdown_timeout,
            warnings=self._loaded.warnings,
        )

    def _find(self, path: Path, message: str, place: Path = ()) -> None:
        self.findings.append(Finding(path, message, place))

    def _check(self, model: type[Model], tree: Any, path: Path) -> Model | None:
        instance, findings = check(model, tree, path, self._loaded.originals, self._context)
        self.findings += findings
        return instance

    def _mapping(self, path: Path, value: Any) -> dict[str, Any]:
        """The mapping there; null is an empty one."""
        if not isinstance(value, dict | None):
            self._find(path, "must be a mapping")
        return value if isinstance(value, dict) else {}

    def _section(self, kind: Kind) -> dict[str, ComponentSettings]:
        section = self._mapping((kind,), self._loaded.tree.get(kind))
        settings = {id_: self._component(kind, id_, value) for id_, value in section.items()}
        return {id_: one for id_, one in settings.items() if one}

    def _component(self, kind: Kind, id_: str, value: Any) -> ComponentSettings | None:
        path = (kind, id_)
        if not self._id_is_good(path, id_):
            return None
        type_ = id_.partition("/")[0]
        try:
            cls = self._registry.load(kind, type_)
        except ConfigError as error:
            self._find(path, error.problems[0].message)
            return None
        self._classes[kind, id_] = cls
        config = self._check(cls.Config, {} if value is None else value, path)
        return ComponentSettings(kind, id_, type_, cls, config) if config else None

    def _id_is_good(self, path: Path, id_: str) -> bool:
        type_, slash, name = id_.partition("/")
        if not _TYPE.fullmatch(type_):
            self._find(path, f"{quoted(type_)} is no type: it has letters, digits and _, a letter first, at most 63")
        elif slash and not (name.strip() and name.isprintable() and len(name) <= _MAX_NAME):
            self._find(path, f"the name after / must be printable, not blank, and at most {_MAX_NAME} characters")
        else:
            return True
        return False

    def _pipelines(self, value: Any) -> dict[str, PipelineSettings]:
        path = ("service", "pipelines")
        if not value and isinstance(value, dict | None):
            self._find(path, "must have at least one")
        tree = value if isinstance(value, dict) else {}
        return {
            id_: self._pipeline(id_, one, (*path, id_))
            for id_, one in tree.items()
            if self._id_is_good((*path, id_), id_)
        }

    def _pipeline(self, id_: str, value: Any, path: Path) -> PipelineSettings:
        checked = self._check(PipelineSection, {} if value is None else value, path)
        tree = checked.model_dump() if checked else value if isinstance(value, dict) else {}
        pipeline = PipelineSettings(
            id_,
            self._references("receivers", tree.get("receivers"), path, (*path, "receivers")),
            self._references("processors", tree.get("processors"), path, (*path, "processors")),
            self._references("exporters", tree.get("exporters"), path, (*path, "exporters")),
            _signals(id_),
        )
        if not pipeline.signals:
            self._find(path, f"a pipeline carries metrics and traces, not {id_.partition('/')[0]}")
        self._check_ends(tree, path)
        self._check_signals(pipeline, path)
        return pipeline

    def _check_ends(self, tree: Mapping[str, Any], path: Path) -> None:
        for kind in ("receivers", "exporters"):
            if not tree.get(kind) and isinstance(tree.get(kind), list | tuple | None):
                self._find(path, f"must have at least one {kind[:-1]}")

    def _check_signals(self, pipeline: PipelineSettings, path: Path) -> None:
        """A component has to know one at least of the signals; the pipeline spares it the other."""
        for kind in PIPELINE_KINDS:
            for id_ in getattr(pipeline, kind):
                cls = self._classes.get((kind, id_))
                if cls and pipeline.signals and not cls.signals & pipeline.signals:
                    verb = "make" if kind == "receivers" else "take"
                    signals = " or ".join(sorted(pipeline.signals))
                    self._find(path, f"{kind[:-1]} {quoted(id_)} does not {verb} {signals}")

    def _references(self, kind: Kind, value: Any, path: Path, list_path: Path) -> tuple[str, ...]:
        """The ids in a list of references; what is wrong with them belongs to `path`."""
        configured = self._mapping((kind,), self._loaded.tree.get(kind))
        ids = tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()
        for index, id_ in enumerate(ids):
            place = (*list_path, index)
            if id_ in ids[:index]:
                self._find(path, f"references {kind[:-1]} {quoted(id_)} more than once", place)
            elif id_ not in configured:
                hint = suggestion(id_, configured, kind)
                self._find(path, f"references {kind[:-1]} {quoted(id_)} which is not configured{hint}", place)
            self._used[kind, id_] = None
        return ids

    def _check_installed(self) -> None:
        """Asks every used component for an optional package that lacks."""
        for kind, id_ in self._used:
            cls = self._classes.get((kind, id_))
            if cls and (sentence := _missing(cls)):
                self._find((kind, id_), one_line(sentence))


def _missing(cls: ComponentClass) -> str | None:
    try:
        return cls.missing()
    except Exception as error:  # noqa: BLE001  # a stranger's check may raise anything
        return f"cannot say whether it has all it needs: {type(error).__name__}: {error}"


def _problem(finding: Finding, sources: Mapping[Path, str]) -> Problem:
    return Problem(joined(finding.path), finding.message, nearest_source(finding.at, sources))


def _signals(pipeline: str) -> frozenset[Signal]:
    """What a pipeline of this id carries. None for what otelcol carries and we don't."""
    if pipeline.startswith("metrics"):
        return frozenset({"metrics"})
    if pipeline.startswith("traces"):
        return frozenset({"traces"})
    return frozenset() if pipeline.partition("/")[0] in ("logs", "profiles") else BOTH
