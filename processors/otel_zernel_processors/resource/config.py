"""The configuration of the resource and the resource_detection processors. The keys are those of the OpenTelemetry
Collector."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.text import quoted
from otel_zernel.types import Duration, Section
from otel_zernel_libraries.attributes.config import ActionName, AttributeAction

Detector = Literal["env", "system", "host", "process"]
SystemAttribute = Literal["host.name", "host.id", "host.arch", "os.type", "os.name", "os.version", "os.description"]


def _is_supported(name: object) -> object:
    """Names the detectors that exist here, since the OpenTelemetry Collector has many more."""
    if name not in get_args(Detector):
        raise ValueError(
            f"the detector {quoted(str(name))} is not supported; supported: {', '.join(get_args(Detector))}; set the "
            "attributes in OTEL_RESOURCE_ATTRIBUTES and use env"
        )
    return name


class ResourceAction(AttributeAction):
    """One change to the attributes of a resource."""

    action: Annotated[ActionName, BeforeValidator(lambda name: name.lower() if isinstance(name, str) else name)] = (
        "upsert"
    )
    """The default is `upsert`."""


class AttributeSwitch(Section):
    """Whether a detector adds an attribute."""

    enabled: bool


class SystemDetectorConfig(Section):
    """The detector `system`."""

    hostname_sources: tuple[str, ...] = ("os",)
    """Only `os`, the kernel's name of the host. Names from DNS would hold up the collector."""
    resource_attributes: dict[SystemAttribute, AttributeSwitch] = Field(default_factory=dict)
    """Adds or leaves out attributes. Without settings, these are added: `host.name` and `os.type`."""

    @field_validator("hostname_sources")
    @classmethod
    def _are_local(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        if sources != ("os",):
            raise ValueError("only [os] is supported, because look-ups in DNS would hold up the collector")
        return sources


class DetectionConfig(ComponentConfig):
    """How to detect where the collector runs."""

    detectors: tuple[Annotated[Detector, BeforeValidator(_is_supported)], ...] = ()
    """The detectors of the collector's environment. If several find the same attribute, the first in the list wins."""
    override: bool = True
    """Whether a detected attribute replaces an existing one."""
    timeout: Duration = 5.0
    """Without an effect: the detectors ask no other machine."""
    system: SystemDetectorConfig = SystemDetectorConfig.model_construct()


class ResourceConfig(DetectionConfig):
    """The changes to every resource: detected attributes first, then the actions in order."""

    attributes: tuple[ResourceAction, ...] = ()
    """The actions, in order."""

    @model_validator(mode="after")
    def _does_something(self) -> "ResourceConfig":
        if not self.attributes and not self.detectors:
            raise ValueError("nothing to do: set attributes, detectors or both")
        return self


class ResourceDetectionConfig(DetectionConfig):
    """How to detect where the collector runs."""

    detectors: tuple[Annotated[Detector, BeforeValidator(_is_supported)], ...] = ("env",)
    refresh_interval: Duration = 0.0
    """Must be 0: detection runs once."""
    fail_on_missing_metadata: bool = False
    """Without an effect: the detectors ask no other machine."""

    @field_validator("refresh_interval")
    @classmethod
    def _is_zero(cls, seconds: float) -> float:
        if seconds:
            raise ValueError("not supported: detection runs once; remove the key, and reload to detect again")
        return seconds
