"""Validates a loaded configuration: the result is typed settings, or all mistakes at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from otel_zernel.batch import ALL_SIGNALS, SIGNALS, Signal
from otel_zernel.component import Extension, Kind, Processor
from otel_zernel.config.diagnose import MUST_BE_MAPPING, Mistake, check, without
from otel_zernel.config.expand import ReadText, read_text
from otel_zernel.config.load import LoadedConfig, load, nearest, nearest_source
from otel_zernel.config.marked import unusable_extensions
from otel_zernel.config.migration import hint, lack_of_effect
from otel_zernel.config.settings import PIPELINE_KINDS
from otel_zernel.config.settings import ComponentSettings as ComponentSettings
from otel_zernel.config.settings import PipelineSettings as PipelineSettings
from otel_zernel.config.settings import Settings as Settings
from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.config.warnings import warnings_of
from otel_zernel.config.yaml12 import Path
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.registry import KINDS, ComponentClass, Registry
from otel_zernel.text import joined, one_line, quoted, suggestion
from otel_zernel.types import Duration, Section

SECTIONS = (*KINDS, "service")

_TYPE = re.compile(r"[a-zA-Z][0-9a-zA-Z_]{0,62}")
_TYPE_RULE = "use at most 63 letters, digits and _, and start with a letter"
_MAX_NAME = 1024

Model = TypeVar("Model", bound=BaseModel)


class PipelineSection(Section):
    """`service::pipelines::<id>`."""

    receivers: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()


class ServiceSection(Section):
    """`service`. Its pipelines are validated separately."""

    pipelines: dict[str, Any] = Field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    telemetry: TelemetrySettings = TelemetrySettings.model_construct()
    shutdown_timeout: Duration = 20.0
    """Seconds that the queues may take to drain when the collector stops."""


def read_settings(
    uris: Sequence[str],
    overrides: Sequence[str],
    environ: Mapping[str, str],
    registry: Registry,
    read: ReadText = read_text,
    *,
    look_at_files: bool = False,
) -> Settings:
    """`load`, then `validate`. Raises `ConfigError` with every mistake. The settings have all warnings.

    With `look_at_files`, also those about files that do not exist. A component that runs reports them itself.
    """
    loaded = load(uris, overrides, environ, read)
    settings = validate(loaded, registry, environ)
    return replace(settings, warnings=(*settings.warnings, *warnings_of(settings, loaded, registry, look_at_files)))


def validate(loaded: LoadedConfig, registry: Registry, environ: Mapping[str, str]) -> Settings:
    """Typed settings. Components read some defaults from `environ`.

    Raises `ConfigError` with every mistake, in the order of the files.
    """
    validation = _Validation(loaded, registry, environ)
    settings = validation.settings()
    if validation.mistakes:
        unset = [
            Problem("", f"warning: {warning}") for warning in loaded.warnings
        ]  # the likeliest cause of a missing value
        raise ConfigError([_problem(problem, loaded.sources) for problem in validation.in_order()] + unset)
    return settings


class _Validation:
    """One walk over a configuration. It continues after a mistake, to find all of them."""

    def __init__(self, loaded: LoadedConfig, registry: Registry, environ: Mapping[str, str]) -> None:
        self._loaded = loaded
        self._registry = registry
        self._context = {"environ": environ}
        self._classes: dict[tuple[Kind, str], ComponentClass] = {}
        self._signals: dict[tuple[Kind, str], frozenset[Signal]] = {}
        self._used: dict[tuple[Kind, str], None] = {}
        self.mistakes: list[Mistake] = []
        self._warnings: list[str] = []

    def in_order(self) -> list[Mistake]:
        """The mistakes in the order of the files."""
        position = {path: index for index, path in enumerate(self._loaded.sources)}

        def position_of(mistake: Mistake) -> int:
            return position.get(nearest(mistake.located_at, position) or (), len(position))

        return sorted(dict.fromkeys(self.mistakes), key=position_of)

    def settings(self) -> Settings:
        """The settings. They are valid only if `mistakes` is empty."""
        for section in self._loaded.tree:
            if section not in SECTIONS:
                guess = suggestion(section, SECTIONS, "sections")
                self.mistakes.append(Mistake((section,), f"unknown section {quoted(section)}", guess=guess))
        components = {kind: self._section(kind) for kind in KINDS}
        tree = self._mapping(("service",), self._loaded.tree.get("service"))
        checked = self._check(ServiceSection, tree, ("service",))
        service = checked or ServiceSection()
        listed = checked.extensions if checked else tree.get("extensions")
        extensions = self._references("extensions", listed, ("service", "extensions"), ("service", "extensions"))
        pipelines = self._pipelines(tree.get("pipelines"), extensions)
        self._check_installed()
        self._check_extension_ids(components)
        return Settings(
            **components,
            pipelines=pipelines,
            extensions_enabled=extensions,
            telemetry=service.telemetry,
            shutdown_timeout=service.shutdown_timeout,
            warnings=(*self._loaded.warnings, *self._warnings),
        )

    def _add_mistake(self, path: Path, message: str, location: Path = ()) -> None:
        self.mistakes.append(Mistake(path, message, location))

    def _check(self, model: type[Model], tree: Any, path: Path) -> Model | None:
        instance, mistakes = check(model, tree, path, self._loaded.originals, self._context)
        rest = self._without_useless_keys(tree, path, mistakes)
        if rest is not tree:
            return self._check(model, rest, path)
        self.mistakes += mistakes
        return instance

    def _without_useless_keys(self, tree: Any, path: Path, mistakes: list[Mistake]) -> Any:
        """The tree at the path without the unknown keys that need none. Each is a warning."""
        for mistake in mistakes:
            reason = lack_of_effect(mistake.path) if mistake.guess else None
            rest = without(tree, mistake.path[len(path) :])
            if reason and rest is not tree:
                source = nearest_source(mistake.path, self._loaded.sources)
                self._warnings.append(str(Problem(joined(mistake.path), f"has no effect: {reason}", source)))
                tree = rest
        return tree

    def _mapping(self, path: Path, value: Any) -> dict[str, Any]:
        """The value if it is a mapping. Null becomes an empty mapping; any other value is a mistake."""
        if not isinstance(value, dict | None):
            self._add_mistake(path, MUST_BE_MAPPING)
        return value if isinstance(value, dict) else {}

    def _section(self, kind: Kind) -> dict[str, ComponentSettings]:
        section = self._mapping((kind,), self._loaded.tree.get(kind))
        settings = {id_: self._component(kind, id_, value) for id_, value in section.items()}
        return {id_: setting for id_, setting in settings.items() if setting}

    def _component(self, kind: Kind, id_: str, value: Any) -> ComponentSettings | None:
        path = (kind, id_)
        if not self._is_valid_id(path, id_):
            return None
        type_ = id_.partition("/")[0]
        if type_ not in (types := self._registry.types(kind)):
            guess = suggestion(type_, types, "types")
            self.mistakes.append(Mistake(path, f"unknown type {quoted(type_)}", guess=guess))
            return None
        try:
            cls = self._registry.load(kind, type_)
        except ConfigError as error:
            self._add_mistake(path, error.problems[0].message)
            return None
        self._classes[kind, id_] = cls
        config = self._check(cls.Config, {} if value is None else value, path)
        self._signals[kind, id_] = cls.accepts(config) if config else cls.signals
        return ComponentSettings(kind, id_, type_, cls, config) if config else None

    def _is_valid_id(self, path: Path, id_: str) -> bool:
        type_, slash, name = id_.partition("/")
        if not _TYPE.fullmatch(type_):
            self._add_mistake(path, f"{quoted(type_)} is not a valid type: {_TYPE_RULE}")
        elif slash and not (name.strip() and name.isprintable() and len(name) <= _MAX_NAME):
            self._add_mistake(
                path, f"the name after / must be printable, not blank, and have at most {_MAX_NAME} characters"
            )
        else:
            return True
        return False

    def _pipelines(self, value: Any, extensions: Sequence[str]) -> dict[str, PipelineSettings]:
        path = ("service", "pipelines")
        if not value and isinstance(value, dict | None) and not any(map(self._works_alone, extensions)):
            self._add_mistake(path, "must have at least one pipeline")
        tree = value if isinstance(value, dict) else {}
        return {
            id_: self._pipeline(id_, pipeline, (*path, id_))
            for id_, pipeline in tree.items()
            if self._is_valid_id((*path, id_), id_)
        }

    def _works_alone(self, extension: str) -> bool:
        cls = self._classes.get(("extensions", extension))
        return bool(cls and issubclass(cls, Extension) and cls.works_alone)

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
        self._check_has_components(tree, path)
        self._check_signals(pipeline, path)
        self._check_order(pipeline, path)
        return pipeline

    def _check_order(self, pipeline: PipelineSettings, path: Path) -> None:
        for id_ in pipeline.processors[1:]:
            cls = self._classes.get(("processors", id_))
            if cls and issubclass(cls, Processor) and cls.belongs_first:
                self._warnings.append(f"{joined(path)}: processor {quoted(id_)} should be the first processor")

    def _check_has_components(self, tree: Mapping[str, Any], path: Path) -> None:
        for kind in ("receivers", "exporters"):
            if not tree.get(kind) and isinstance(tree.get(kind), list | tuple | None):
                self._add_mistake(path, f"must have at least one {kind[:-1]}")

    def _check_signals(self, pipeline: PipelineSettings, path: Path) -> None:
        """Each component must support at least one of the pipeline's signals. It is not given the other one."""
        for kind in PIPELINE_KINDS:
            for id_ in getattr(pipeline, kind):
                if not self._signals.get((kind, id_), pipeline.signals) & pipeline.signals:
                    verb = "produce" if kind == "receivers" else "accept"
                    mismatch = f"does not {verb} {' or '.join(sorted(pipeline.signals))}"
                    self._add_mistake(path, f"{kind[:-1]} {quoted(id_)} {mismatch}; remove it from the pipeline")

    def _references(self, kind: Kind, value: Any, path: Path, list_path: Path) -> tuple[str, ...]:
        """The ids in a list of references. Mistakes are reported for `path`."""
        configured = self._mapping((kind,), self._loaded.tree.get(kind))
        ids = (
            tuple(reference for reference in value if isinstance(reference, str))
            if isinstance(value, list | tuple)
            else ()
        )
        for index, id_ in enumerate(ids):
            location = (*list_path, index)
            if id_ in ids[:index]:
                self._add_mistake(path, f"references {kind[:-1]} {quoted(id_)} more than once; keep one", location)
            elif id_ not in configured:
                hint = suggestion(id_, configured, kind)
                self._add_mistake(path, f"references {kind[:-1]} {quoted(id_)} which is not configured{hint}", location)
            self._used[kind, id_] = None
        return ids

    def _check_extension_ids(self, components: Mapping[Kind, Mapping[str, ComponentSettings]]) -> None:
        """Reports fields that name an extension which the component cannot use."""
        enabled = {id_: self._classes.get(("extensions", id_)) for kind, id_ in self._used if kind == "extensions"}
        for kind, id_ in self._used:
            if component := components[kind].get(id_):
                self.mistakes += unusable_extensions(component.config, (kind, id_), enabled)

    def _check_installed(self) -> None:
        """Reports the missing optional packages of every component in use."""
        for kind, id_ in self._used:
            cls = self._classes.get((kind, id_))
            if cls and (message := _missing(cls)):
                self._add_mistake((kind, id_), one_line(message))


def _missing(cls: ComponentClass) -> str | None:
    try:
        return cls.missing()
    except Exception as error:  # noqa: BLE001  # a third party's check may raise anything
        bug = f"{type(error).__name__}: {error}"
        return f"the component's check for missing packages failed: {bug}; report this bug to its author"


def _problem(mistake: Mistake, sources: Mapping[Path, str]) -> Problem:
    better = hint(mistake.path) if mistake.guess else None
    ending = f"; {better}" if better else mistake.guess
    return Problem(joined(mistake.path), mistake.message + ending, nearest_source(mistake.located_at, sources))


def _signals(pipeline: str) -> frozenset[Signal]:
    """The signals of a pipeline with this id."""
    for signal in SIGNALS:
        if pipeline.startswith(signal):
            return frozenset({signal})
    return ALL_SIGNALS
