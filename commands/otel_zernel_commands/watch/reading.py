"""Reads fields of a live state that comes from elsewhere: every field may be missing, or have the wrong type."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_MOST: Final = 1e18
"""Larger numbers are no durations, sizes or times."""
_NOTHING: Final[Mapping[str, Any]] = {}


def number(fields: Any, *path: str) -> float | None:
    """The number at a path of keys; None if there is none."""
    return as_number(_value(fields, path))


def as_number(value: Any) -> float | None:
    """The value as a finite number; None if it is none."""
    kind = type(value)
    return float(value) if (kind is float or kind is int) and -_MOST < value < _MOST else None  # NaN is not between


def text(fields: Any, *path: str) -> str:
    """The text at a path of keys; empty if there is none."""
    value = _value(fields, path)
    return value if isinstance(value, str) else ""


def table(fields: Any, *path: str) -> Mapping[str, Any]:
    """The object at a path of keys; empty if there is none."""
    value = _value(fields, path)
    return value if isinstance(value, dict) else _NOTHING


def rows(fields: Any, *path: str) -> list[Any]:
    """The list at a path of keys; empty if there is none."""
    value = _value(fields, path)
    return value if isinstance(value, list) else []


def _value(fields: Any, path: Sequence[str]) -> Any:
    for key in path:
        fields = fields.get(key) if isinstance(fields, dict) else None
    return fields


def objects(state: Any, name: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a table of the state that are objects."""
    return {id_: item for id_, item in table(state, name).items() if isinstance(item, dict)}
