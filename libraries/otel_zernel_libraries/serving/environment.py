"""Environment variables as defaults of a component's configuration: the configuration wins.

A model reads them in a `model_validator` of mode `before`. They come with the context of the validation.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationInfo

from otel_zernel.types import Address


def environment_of(info: ValidationInfo) -> Mapping[str, str]:
    """The environment of the collector; empty if the validation has none."""
    environment: Mapping[str, str] = (info.context or {}).get("environ", {})
    return environment


def default_port(fields: Any, info: ValidationInfo, variable: str, default: Address) -> Any:
    """The configuration, with an `endpoint` of the port in the variable if it has none.

    Raises `ValueError` if the variable is set to anything else than a port.
    """
    text = environment_of(info).get(variable, "").strip()
    if not text or not isinstance(fields, Mapping) or "endpoint" in fields:
        return fields
    if not text.isascii() or not text.isdecimal() or int(text[:6]) > 65535:
        raise ValueError(f"{variable}: {text[:20]!r} is not a port; set it to a number from 0 to 65535")
    return {**fields, "endpoint": Address(default.host, int(text))}
