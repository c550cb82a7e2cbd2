"""File names for the paths of components: readable, safe on every file system, and reversible."""

import re
from typing import Final
from urllib.parse import unquote

from otel_zernel.errors import CannotStart

_LONGEST: Final = 240
"""Characters. Linux and macOS allow 255 in a file name, and the folders have endings."""
_SAFE = re.compile(r"[a-z0-9_-]")


def file_name(component: str) -> str:
    """`exporters::otlp/backup` becomes `exporters%3a%3aotlp%2fbackup`. Raises `CannotStart` if it is too long.

    Capitals are escaped too, since some file systems take `A` and `a` for one letter.
    """
    name = "".join(one if _SAFE.fullmatch(one) else _escaped(one) for one in component)
    if len(name) > _LONGEST:
        raise CannotStart(f"{component}: the name is too long for a file; shorten it to at most {_LONGEST} characters")
    return name


def component_name(name: str) -> str:
    """The path of the component with this file name."""
    return unquote(name)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
