"""The rules of relabelling, with the keys and defaults of Prometheus."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.types import Section

RelabelAction = Literal[
    "replace",
    "keep",
    "drop",
    "keepequal",
    "dropequal",
    "hashmod",
    "labelmap",
    "labeldrop",
    "labelkeep",
    "lowercase",
    "uppercase",
]
_WITH_TARGET = {"replace", "hashmod", "lowercase", "uppercase", "keepequal", "dropequal"}


class RelabelConfig(Section):
    """One rule. Regular expressions have the syntax of RE2 and match the whole text."""

    source_labels: tuple[str, ...] = ()
    """The labels whose values are joined and matched."""
    separator: str = ";"
    """The text between the joined values."""
    regex: str = "(.*)"
    """The expression for the joined values; for labelmap, labeldrop and labelkeep, for label names."""
    modulus: int = Field(0, ge=0)
    """For hashmod: the number of shards."""
    target_label: str = ""
    """The label to set or to compare with."""
    replacement: str = "$1"
    """The new value; `$1` and `${name}` are groups of the expression."""
    action: RelabelAction = "replace"
    """What the rule does."""

    @field_validator("action", mode="before")
    @classmethod
    def _any_case(cls, action: object) -> object:
        return action.lower() if isinstance(action, str) else action

    @field_validator("regex", mode="before")
    @classmethod
    def _number_is_text(cls, regex: object) -> object:
        return str(regex) if isinstance(regex, int | float) else regex

    @field_validator("regex")
    @classmethod
    def _is_an_expression(cls, regex: str) -> str:
        from otel_zernel_libraries.conditions.patterns import Pattern  # importing RE2 takes time

        Pattern(regex)
        return regex

    @model_validator(mode="after")
    def _fits_the_action(self) -> Self:
        if self.action in _WITH_TARGET and not self.target_label:
            raise ValueError(f"action {self.action} needs target_label")
        if self.action == "hashmod" and not self.modulus:
            raise ValueError("action hashmod needs a modulus of 1 or more")
        if self.action in {"labeldrop", "labelkeep"} and self.source_labels:
            raise ValueError(f"action {self.action} matches names of labels: remove source_labels")
        if self.action in {"keepequal", "dropequal"} and not self.source_labels:
            raise ValueError(f"action {self.action} needs source_labels")
        return self
