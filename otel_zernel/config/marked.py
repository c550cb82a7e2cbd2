"""Finds the fields of a configuration that have a mark in their annotation, such as `ExtensionId`."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from otel_zernel.config.yaml12 import Path

Mark = TypeVar("Mark")


def marked_fields(config: Any, path: Path, mark: type[Mark]) -> Iterator[tuple[Path, Any, Mark]]:
    """The path, the value and the mark of each marked field, also in sections, lists and mappings."""
    if isinstance(config, BaseModel):
        for name, info in type(config).model_fields.items():
            value, here = getattr(config, name), (*path, name)
            yield from ((here, value, one) for one in info.metadata if isinstance(one, mark))
            yield from marked_fields(value, here, mark)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from marked_fields(value, (*path, key), mark)
    elif isinstance(config, list | tuple):
        for index, value in enumerate(config):
            yield from marked_fields(value, (*path, index), mark)
