"""The configuration of the resource processor."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Detector = Literal["env", "host", "process"]


class Action(ComponentConfig):
    """One thing to do to one attribute."""

    key: str = Field(min_length=1)
    """The attribute."""
    value: bool | Int64 | float | str | tuple[str, ...] | None = None
    """Its value."""
    from_attribute: str | None = None
    """The attribute to take the value from; where a resource lacks it, nothing is done."""
    action: Literal["upsert", "insert", "update", "delete"] = "upsert"
    """`insert` sets it where it is missing, `update` where it is there, `upsert` in both cases."""

    @model_validator(mode="after")
    def _has_one_value(self) -> "Action":
        given = (self.value is not None) + (self.from_attribute is not None)
        if self.action == "delete" and given:
            raise ValueError(f"{self.key}: delete takes no value")
        if self.action != "delete" and given != 1:
            raise ValueError(f"{self.key}: {self.action} needs either a value or from_attribute")
        return self


class ResourceConfig(ComponentConfig):
    """What to do to every resource: first what is detected, then the actions in their order."""

    attributes: tuple[Action, ...] = ()
    """The actions, in order."""
    detect: tuple[Detector, ...] = ()
    """What to find out about where the collector runs. Of an attribute that several find, the first counts."""
    override: bool = True
    """Whether a detected attribute replaces one that the resource has already."""

    @model_validator(mode="after")
    def _does_something(self) -> "ResourceConfig":
        if not self.attributes and not self.detect:
            raise ValueError("nothing to do: give attributes, detect or both")
        return self
