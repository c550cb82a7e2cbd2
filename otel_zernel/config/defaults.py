"""Prints every option of a configuration with its value or default, and with its description as a comment."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from otel_zernel.config.settings import Settings
from otel_zernel.config.show import dump, plain
from otel_zernel.registry import KINDS
from otel_zernel.types import NamedSections

_WIDTH = 120


def with_defaults(settings: Settings, service: dict[str, Any], redacted: bool) -> str:
    """All options of the configured components and of the service, as YAML. `service` is its section as configured."""
    lines: list[str] = []
    for kind in KINDS:
        if components := getattr(settings, kind):
            lines.append(f"{kind}:")
            for id_, component in components.items():
                lines += _section(id_, component.config, "  ", redacted)
    lines.append("service:")
    if "pipelines" in service:
        lines += _entry("pipelines", service["pipelines"], "  ", redacted)
    lines += _entry("extensions", settings.extensions_enabled, "  ", redacted)
    lines += _entry("shutdown_timeout", f"{settings.shutdown_timeout:g}s", "  ", redacted)
    lines += _section("telemetry", settings.telemetry, "  ", redacted)
    return "\n".join(lines) + "\n"


def _section(key: str, model: BaseModel, indent: str, redacted: bool) -> Iterator[str]:
    fields = type(model).model_fields
    if not fields:
        yield from _entry(key, {}, indent, redacted)
        return
    yield f"{indent}{_key(key)}:"
    dumped, comments = model.model_dump(), descriptions(type(model))
    for name, info in fields.items():
        if isinstance(model, NamedSections) and getattr(model, name) is None:
            continue
        key_of_field = info.alias or name
        if comment := comments.get(name):
            yield from (f"{indent}  # {line}" for line in textwrap.wrap(comment, _WIDTH - len(indent) - 4))
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _section(key_of_field, value, indent + "  ", redacted)
        else:
            yield from _entry(key_of_field, dumped[name], indent + "  ", redacted)


def _entry(key: str, value: Any, indent: str, redacted: bool) -> Iterator[str]:
    text = dump({key: plain(value, redacted)})
    return (indent + line for line in text.splitlines())


def _key(key: str) -> str:
    return dump({key: None}).rpartition(":")[0]


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The text below each field of the class and of its bases, on one line. Empty if the source is not available."""
    texts: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            texts |= _descriptions_in(cls)
    return texts


def _descriptions_in(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
