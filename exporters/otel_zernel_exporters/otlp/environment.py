"""`OTEL_EXPORTER_OTLP_*`: the SDKs' settings replace keys that are missing in the configuration.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pydantic import ValidationInfo

from otel_zernel.types import HEADER_NAME

PREFIX = "OTEL_EXPORTER_OTLP_"
"""A token of RFC 9110."""

_KEYS = {"ENDPOINT": "endpoint", "COMPRESSION": "compression", "HEADERS": "headers", "TIMEOUT": "timeout"}
_TLS_KEYS = {
    "CERTIFICATE": "ca_file",
    "CLIENT_CERTIFICATE": "cert_file",
    "CLIENT_KEY": "key_file",
    "INSECURE": "insecure",
}
SIGNAL_ENDPOINTS = {
    "METRICS_ENDPOINT": "metrics_endpoint",
    "TRACES_ENDPOINT": "traces_endpoint",
    "LOGS_ENDPOINT": "logs_endpoint",
}


def fill_in(fields: Any, info: ValidationInfo, more: Mapping[str, str] | None = None) -> Any:
    """The configuration, with missing keys from the `environ` of the validation context, if it has one.

    `more` maps further variables, without the prefix, to keys.
    """
    environ = (info.context or {}).get("environ", {})
    if not isinstance(fields, Mapping) or not environ:
        return fields
    found = _found(environ, _KEYS | dict(more or {}))
    tls, own_tls = _found(environ, _TLS_KEYS), fields.get("tls") or {}
    if tls and isinstance(own_tls, Mapping):
        return {**found, **fields, "tls": {**tls, **own_tls}}
    return {**found, **fields}


def _found(environ: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, object]:
    set_ones = {key: name for name, key in keys.items() if environ.get(PREFIX + name)}
    return {key: _value(name, environ[PREFIX + name]) for key, name in set_ones.items()}


def _value(name: str, text: str) -> object:
    if name == "HEADERS":
        return dict(_header(place, part) for place, part in enumerate(text.split(","), 1) if part.strip())
    if name == "TIMEOUT":
        return _milliseconds(text)
    return text


def _header(place: int, text: str) -> tuple[str, str]:
    """The errors name the place only: a part of a secret may stand where the name should be."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{PREFIX}HEADERS: part {place} has no value; write name=value,name=value")
    name = unquote(name).strip()
    if not HEADER_NAME.fullmatch(name):
        raise ValueError(f"{PREFIX}HEADERS: part {place} has no valid header name; write name=value,name=value")
    return name, unquote(value).strip()


def _milliseconds(text: str) -> str:
    if not text.strip().isdecimal():
        raise ValueError(f"{PREFIX}TIMEOUT: {text!r} is not a number of milliseconds")
    return f"{text.strip()}ms"
