"""The decoders of a label, as they are configured."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from otel_zernel.types import Section
from otel_zernel_receivers.bcc.decoders import BY_NAME, Raw, mapped, matched, text

DecoderName = Literal[
    "uint",
    "int",
    "pid",
    "string",
    "comm",
    "hex",
    "inet_ip",
    "errno",
    "ifname",
    "majorminor",
    "ksym",
    "syscall",
    "static_map",
    "regexp",
]
IN_CHILD = frozenset({"ksym", "syscall"})
"""Decoders that run in the child process, where BCC has the tables of the kernel."""


class DecoderConfig(Section):
    """One decoder of a label."""

    name: DecoderName
    static_map: Mapping[str | int, str] = Field(default_factory=dict)
    """For `static_map`: texts by value. Other values become `unknown:VALUE`."""
    regexps: tuple[str, ...] = ()
    """For `regexp`: entries that match none are left out."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("regexps")
    @classmethod
    def _compiles(cls, regexps: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in regexps:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return regexps

    @model_validator(mode="after")
    def _has_its_options(self) -> "DecoderConfig":
        for name, given in (("static_map", self.static_map), ("regexp", self.regexps)):
            if (self.name == name) != bool(given):
                option = "static_map" if name == "static_map" else "regexps"
                raise ValueError(f"the option `{option}` and the decoder `{name}` need each other")
        return self

    def decode(self, value: Raw) -> int | str:
        """The value of the attribute, or the input of the next decoder. Raises `Skipped`."""
        if self.name == "static_map":
            return mapped(self.static_map, value)
        if self.name == "regexp":
            return matched(self.regexps, value)
        return BY_NAME[self.name](value)


def decoded(decoders: Sequence[DecoderConfig], value: Raw) -> int | str:
    """The value after all decoders. Without decoders, integers stay and bytes are text. Raises `Skipped`."""
    for decoder in decoders:
        value = decoder.decode(value)
    return text(value) if isinstance(value, bytes) else value
