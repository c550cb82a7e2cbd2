"""Cursors: the key of the last point of a page, for one query."""

import hashlib
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from otel_zernel_extensions.query.requests.parameters import wrong
from otel_zernel_libraries.store.queries.pages import Key

_LAYOUT: Final = struct.Struct("<qq8s")
"""The series id, the time in ns, and the mark of the query."""


def mark_of(parts: Mapping[str, Sequence[str]]) -> bytes:
    """A mark of the parameters that decide which points a query has, and in which order."""
    text = "\0".join(f"{name}\0{value}" for name in sorted(parts) for value in sorted(parts[name]))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]


def written_cursor(key: Key, mark: bytes) -> str:
    """The text of a cursor."""
    return urlsafe_b64encode(_LAYOUT.pack(*key, mark)).decode()


def read_cursor(text: str, mark: bytes) -> Key:
    """The key in a cursor. Raises `ParameterError` for other text, and for the cursor of another query."""
    try:
        series, time, found_mark = _LAYOUT.unpack(urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, struct.error):
        wrong("cursor", "cursor is not one that this server made; use next_cursor of an answer")
    if found_mark != mark:
        wrong("cursor", "cursor belongs to a query with other filters; keep all other parameters, or begin without it")
    return series, time
