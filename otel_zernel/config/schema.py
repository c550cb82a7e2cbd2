"""Validates a loaded configuration into typed settings, with every mistake at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otel_zernel.component import Component, ComponentConfig, Kind, Signal
from otel_zernel.config.load import Loaded, load
from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.registry import Registry


@dataclass(frozen=True, slots=True)
class ComponentSettings:
    """One configured component."""

    kind: Kind
    id: str
    """`type` or `type/name`."""
    type: str
    cls: type[Component]
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


def read_settings(
    uris: Sequence[str], overrides: Sequence[str], environ: Mapping[str, str], registry: Registry
) -> Settings:
    """`load` and `validate` in one. Raises `ConfigError` with every mistake."""
    return validate(load(uris, overrides, environ), registry, environ)


def validate(loaded: Loaded, registry: Registry, environ: Mapping[str, str]) -> Settings:
    """Typed settings. `environ` is what components take fall-back defaults from.

    Raises `ConfigError` with every mistake, in the file's order.
    """
    raise NotImplementedError
