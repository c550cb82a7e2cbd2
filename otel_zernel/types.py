"""The building blocks of configurations: the section model, and the types of its fields."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    model_validator,
)


class Section(BaseModel):
    """A mapping in the configuration. An unknown key is an error, and the validated values cannot change.

    pydantic builds the validator of a class at its first use: a start needs only those of the configured components.
    So default values are made by `model_construct`, which needs no validator.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class NamedSections(Section):
    """Sections that are on if they are named. A name without options has the defaults, as in otelcol.

    Each field is a section or None, for off. None cannot be written: `print-config` leaves such fields out.
    """

    @model_validator(mode="before")
    @classmethod
    def _null_means_defaults(cls, sections: Any) -> Any:
        if not isinstance(sections, Mapping):
            return {} if sections is None else sections
        return {name: {} if options is None else options for name, options in sections.items()}


_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3}
"""A division by these is exact where a product with 1e-6 is not: 100us is the number 0.0001."""
_LONGEST = 1_000_000 * 3600.0
"""The longest duration in seconds: 1,000,000 h (114 years). Timers fail with much longer ones."""


def parse_duration(value: object) -> float:
    """The seconds in `1h30m`, `200ms` or `1.5s`, the notation of Go and the OpenTelemetry Collector. 0 needs no unit.

    Raises `ValueError` for any other text.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value == 0:
            return 0.0
        raise ValueError(f"a duration needs a unit: {value}s, {value}ms, {value}m")
    text = str(value).strip()
    parts = _DURATION.findall(text)
    if text == "0" or (parts and "".join(parts) == text):
        seconds = sum(_part_seconds(part) for part in parts)
        if seconds > _LONGEST:
            raise ValueError(f"a duration must not be longer than {_LONGEST / 3600:.0f}h")
        return seconds
    raise ValueError(f"not a duration: {text!r}; write 10s, 200ms or 1m30s")


def _part_seconds(part: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(\D+)", part).groups()  # type: ignore[union-attr]  # _DURATION matched it
    return float(number) / _PER_SECOND[unit] if unit in _PER_SECOND else float(number) * _SECONDS[unit]


def format_duration(seconds: float) -> str:
    """The duration as a whole number of the largest possible unit: `90s`, `1500ms`."""
    for unit, size in (("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-9:
            return f"{round(seconds / size)}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(format_duration, when_used="always")]
"""Seconds, written `10s`, `200ms`, `1m30s`. Class defaults are plain floats."""

PositiveDuration = Annotated[Duration, AfterValidator(lambda value: positive(value))]
"""A duration greater than zero."""


def positive(seconds: float) -> float:
    """The same number. Raises `ValueError` if it is not above 0."""
    if seconds <= 0:
        raise ValueError("must be greater than 0")
    return seconds


class Address(NamedTuple):
    """An address to listen on. An empty host means every interface. Port 0 lets the system choose a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(value: object) -> Address:
    """The address in `localhost:9091`, `0.0.0.0:9091`, `[::1]:9091` or `:9091`. Raises `ValueError` for other text."""
    if isinstance(value, Address):
        return value
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]*\]|[^:/\s\[\]]*):(\d{1,5})", str(value).strip())
    if not match or int(match[2]) > 65535:
        raise ValueError(f"not an address to listen on: {str(value)!r}; write localhost:9091 or 0.0.0.0:9091")
    return Address(match[1].strip("[]"), int(match[2]))


ListenAddress = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str, when_used="always")]
"""Host and port to listen on."""


@dataclass(frozen=True, slots=True)
class ExtensionId:
    """Marks a field as the id of an extension: `Annotated[str | None, ExtensionId(Storage)]`.

    Validation reports an id that is not in `service::extensions`, or whose class does not derive from `contract`.
    """

    contract: type


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """Marks a field as the path of a file that the component reads, or as a list of paths and globs.

    `Annotated[str | None, ReadableFile()]`. Validation warns if there is no such file.
    """


def _permissions(text: str) -> str:
    if not text.isascii() or not text.isdigit() or "8" in text or "9" in text or int(text, 8) > 0o777:
        raise ValueError(f'{text!r} are not file permissions; write them in octal and quoted, like "0755"')
    return text


Permissions = Annotated[str, AfterValidator(_permissions)]
"""Permissions of a file or a directory: octal digits, quoted in YAML. The umask of the process applies too."""

Ratio = Annotated[float, Field(ge=0, le=1)]
Secret = SecretStr
"""A string that is never printed."""


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of an HTTP header (RFC 9110, 5.1)."""
PRINTABLE = re.compile(r"[\x20-\x7e]*")
"""The value of an HTTP header."""


def _check_headers(headers: dict[str, Secret]) -> dict[str, Secret]:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid header name")
        if not PRINTABLE.fullmatch(value.get_secret_value()):
            raise ValueError(f"the value of {name!r} has characters outside printable ASCII; remove or encode them")
    return headers


def _by_name(value: object) -> object:
    """The mapping for a list of `{name: NAME, value: VALUE}`, which the OpenTelemetry Collector also takes."""
    if not isinstance(value, list):
        return value
    if not all(isinstance(pair, Mapping) and {"name"} <= pair.keys() <= {"name", "value"} for pair in value):
        raise ValueError("write a mapping, such as {NAME: VALUE}, or a list of {name: NAME, value: VALUE}")
    names = [str(pair["name"]) for pair in value]
    if len(set(names)) < len(names):
        raise ValueError(f"{max(names, key=names.count)!r} is in the list twice; remove one of them")
    return {name: pair.get("value", "") for name, pair in zip(names, value, strict=True)}


SecretPairs = Annotated[dict[str, Secret], BeforeValidator(_by_name)]
"""Texts by name, whose values are never printed."""
SecretHeaders = Annotated[SecretPairs, AfterValidator(_check_headers)]
"""HTTP headers, whose values are never printed."""
