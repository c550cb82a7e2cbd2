"""The configuration of actions on attributes. The keys are those of the OpenTelemetry Collector."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from otel_zernel.text import quoted
from otel_zernel.types import Section
from otel_zernel_libraries.conditions import Pattern

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Plain = bool | Int64 | float | str
AttributeValue = Plain | tuple[Plain, ...]
ActionName = Literal["insert", "update", "upsert", "delete", "hash", "extract", "convert"]


def _lower(value: Any) -> Any:
    """As in the OpenTelemetry Collector, actions may be written in upper case."""
    return value.lower() if isinstance(value, str) else value


class AttributeAction(Section):
    """One change to the attributes of an item."""

    key: str = ""
    """The name of the attribute."""
    action: Annotated[ActionName, BeforeValidator(_lower)]
    """`insert` adds a missing attribute, `update` changes an existing one, `upsert` does both, `delete` removes it,
    `hash` replaces its value by the SHA-256 of it, `extract` adds an attribute for each group of `pattern`, and
    `convert` changes its type."""
    value: AttributeValue | None = None
    """The new value."""
    from_attribute: str | None = None
    """The attribute to copy the value from. Without that attribute, nothing changes."""
    from_context: str | None = None
    """Not supported: batches carry no metadata of clients."""
    default_value: AttributeValue | None = None
    """The value if the attribute of `from_attribute` is missing."""
    pattern: str = ""
    """For `extract`, an expression with named groups. For `delete` and `hash`, one for names of attributes."""
    converted_type: Literal["int", "double", "string"] | None = None
    """For `convert`."""

    @field_validator("from_context")
    @classmethod
    def _is_unset(cls, value: str | None) -> None:
        if value is not None:
            raise ValueError("not supported, because batches carry no metadata of clients; use value or from_attribute")

    @model_validator(mode="after")
    def _is_complete(self) -> "AttributeAction":
        name = self.action
        if not self.key and not (name in ("delete", "hash") and self.pattern):
            raise ValueError(f"the action {name} needs a key{' or a pattern' if name in ('delete', 'hash') else ''}")
        self._check_sources()
        if self.pattern and name not in ("delete", "hash", "extract"):
            raise ValueError(f"the action {name} has no pattern")
        if (name == "convert") != (self.converted_type is not None):
            raise ValueError(f"the action {name} {'needs' if name == 'convert' else 'has no'} converted_type")
        self._check_pattern()
        return self

    def _check_sources(self) -> None:
        sources = [source for source in ("value", "from_attribute") if getattr(self, source) is not None]
        writes = self.action in ("insert", "update", "upsert")
        if not writes and (sources or self.default_value is not None):
            raise ValueError(f"the action {self.action} has no value, from_attribute or default_value")
        if writes and not sources and self.default_value is None:
            raise ValueError(f"the action {self.action} needs value, from_attribute or default_value")
        if len(sources) > 1:
            raise ValueError(f"the action {self.action} needs either value or from_attribute, not both")

    def _check_pattern(self) -> None:
        names = Pattern(self.pattern).names
        if self.action == "extract" and (not names or "" in names):
            raise ValueError(f"every group of the pattern needs a name, such as (?P<name>...): {quoted(self.pattern)}")
