"""The configuration of the resource processor."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Detector = Literal["env", "host", "process"]


class Action(ComponentConfig):
    """One change to one attribute."""

    key: str = Field(min_length=1)
    """The name of the attribute."""
    value: bool | Int64 | float | str | tuple[str, ...] | None = None
    """The new value."""
    from_attribute: str | None = None
    """The attribute to copy the value from. Without that attribute, the resource does not change."""
    action: Literal["upsert", "insert", "update", "delete"] = "upsert"
    """`insert` adds a missing attribute, `update` changes an existing one, `upsert` does both, `delete` removes it."""

    @model_validator(mode="after")
    def _has_one_value(self) -> "Action":
        given = (self.value is not None) + (self.from_attribute is not None)
        if self.action == "delete" and given:
            raise ValueError(f"{self.key}: the action delete must not have a value or from_attribute")
        if self.action != "delete" and given != 1:
            raise ValueError(f"{self.key}: the action {self.action} needs either a value or from_attribute")
        return self


class ResourceConfig(ComponentConfig):
    """The changes to every resource: detected attributes first, then the actions in order."""

    attributes: tuple[Action, ...] = ()
    """The actions, in order."""
    detect: tuple[Detector, ...] = ()
    """The detectors of the collector's environment. If several find the same attribute, the first in the list wins."""
    override: bool = True
    """Whether a detected attribute replaces an existing one."""

    @model_validator(mode="after")
    def _does_something(self) -> "ResourceConfig":
        if not self.attributes and not self.detect:
            raise ValueError("nothing to do: set attributes, detect or both")
        return self
