"""The settings of a valid configuration."""

from collections.abc import Mapping
from dataclasses import dataclass

from otel_zernel.batch import Signal
from otel_zernel.component import ComponentConfig, Kind
from otel_zernel.config.telemetry import TelemetrySettings
from otel_zernel.registry import ComponentClass

PIPELINE_KINDS: tuple[Kind, ...] = ("receivers", "processors", "exporters")


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
    """One pipeline, with the ids of its components in order."""

    id: str
    receivers: tuple[str, ...]
    processors: tuple[str, ...]
    exporters: tuple[str, ...]
    signals: frozenset[Signal]


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid configuration. Each mapping has all configured components by id, also those that no pipeline uses."""

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
