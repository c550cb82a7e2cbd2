"""Finds the fields of a configuration that have a mark in their annotation, such as `ExtensionId`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from otel_zernel.config.diagnose import Mistake
from otel_zernel.config.yaml12 import Path
from otel_zernel.text import quoted
from otel_zernel.types import ExtensionId

Mark = TypeVar("Mark")


def marked_fields(config: Any, path: Path, mark: type[Mark]) -> Iterator[tuple[Path, Any, Mark]]:
    """The path, the value and the mark of each marked field, also in sections, lists and mappings."""
    if isinstance(config, BaseModel):
        for name, info in type(config).model_fields.items():
            value, here = getattr(config, name), (*path, name)
            yield from ((here, value, mark_) for mark_ in info.metadata if isinstance(mark_, mark))
            yield from marked_fields(value, here, mark)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from marked_fields(value, (*path, key), mark)
    elif isinstance(config, list | tuple):
        for index, value in enumerate(config):
            yield from marked_fields(value, (*path, index), mark)


def unusable_extensions(config: BaseModel, path: Path, enabled: Mapping[str, type | None]) -> Iterator[Mistake]:
    """A mistake for each field that names an extension which is not enabled, or which is of another kind.

    `enabled` has the class of each enabled extension; None if its class cannot be loaded, which is another mistake.
    """
    for where, id_, mark in marked_fields(config, path, ExtensionId):
        if id_ is None:
            continue
        cls, contract = enabled.get(id_), mark.contract
        if id_ not in enabled:
            names = ", ".join(enabled) or "none"
            yield Mistake(where, f"extension {quoted(id_)} is not in service::extensions; add it (enabled: {names})")
        elif cls and not issubclass(cls, contract):
            yield Mistake(where, f"extension {quoted(id_)} cannot be used here; name {_words(contract)} extension")


def _words(contract: type) -> str:
    """`a storage` for the class `Storage`, `an authenticator` for `Authenticator`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", contract.__name__).lower()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
