"""Prints the effective configuration, for `print-config`."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import yaml
from pydantic import BaseModel, SecretBytes, SecretStr

from otel_zernel.config.expand import escape
from otel_zernel.config.load import LoadedConfig
from otel_zernel.config.schema import Settings
from otel_zernel.config.yaml12 import read_scalar
from otel_zernel.registry import KINDS
from otel_zernel.text import REDACTED, without_secrets

_SECRET_KEY = re.compile(r"token|password|secret|credential|key_pem|inline|api_?key|access_?key", re.IGNORECASE)
_SECRET_SECTION = re.compile(r"header", re.IGNORECASE)
"""Keys of secrets, and of mappings whose values are secrets."""
_REFERENCE = re.compile(r"\$\{[^{}]*\}")

_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Characters that are line breaks in YAML 1.1 besides CR and LF."""


def show(loaded: LoadedConfig, settings: Settings, redacted: bool) -> str:
    """The merged configuration as YAML. It includes the defaults that components read from the environment.

    If `redacted`, secrets are printed as `[REDACTED]`, also users and the values of queries in URLs. Otherwise,
    reading the text again gives the same settings.
    """
    tree: dict[str, Any] = {}
    for kind in KINDS:
        if kind in loaded.tree:
            tree[kind] = {id_: _dumped(component.config) for id_, component in getattr(settings, kind).items()}
    service = loaded.tree["service"]
    tree["service"] = service | ({"telemetry": _dumped(settings.telemetry)} if "telemetry" in service else {})
    return dump(plain(tree, redacted))


def show_unchecked(tree: Any, redacted: bool) -> str:
    """The merged configuration as YAML, without validation and with its references (`${env:NAME}`) as they are.

    If `redacted`, values are printed as `[REDACTED]` where their keys look like those of secrets.
    """
    return dump(_hidden(tree) if redacted else tree)


def _hidden(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        hides = bool(_SECRET_SECTION.search(key))
        return {name: REDACTED if hides and _is_plain(inner) else _hidden(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner, key) for inner in value]
    if isinstance(value, str):
        return REDACTED if _SECRET_KEY.search(key) and _is_plain(value) else without_secrets(value)
    return value


def _is_plain(value: Any) -> bool:
    """Whether the value is a scalar other than a reference, which is no secret itself."""
    return not isinstance(value, dict | list | None) and not _REFERENCE.fullmatch(str(value))


def dump(tree: Any) -> str:
    """The tree as YAML. `load` reads the same tree from it."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _dumped(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(exclude_unset=True)


def plain(value: Any, redacted: bool) -> Any:
    """The value as mappings, lists and scalars."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, redacted) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, redacted) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item, redacted) for item in value), key=str)
    if isinstance(value, SecretStr | SecretBytes):
        secret = value.get_secret_value()
        return REDACTED if redacted else escape(secret if isinstance(secret, str) else secret.decode())
    if isinstance(value, Enum):
        return plain(value.value, redacted)
    if isinstance(value, bool | int | float | None):
        return value
    return escape(without_secrets(str(value)) if redacted else str(value))


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or YAML 1.2 would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    if _LINE_BREAKS.search(text):
        return '"'  # only this style escapes line breaks; in the other styles they are read as a space
    return None if isinstance(read_scalar(text), str) else "'"


_Dumper.add_representer(str, _represent_text)
