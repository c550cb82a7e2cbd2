"""Mistakes in a request as sentences for the client. They never have values, which may be secrets."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from otel_zernel.text import visible

_MOST: Final = 3
"""Mistakes that are named."""
_LIST: Final = 'write a list of texts, such as ["python3", "train.py"]'
_OBJECT: Final = "write an object in braces"
_ADVICE: Final = {
    "missing": "it is missing",
    "list_type": _LIST,
    "too_short": _LIST,
    "string_type": "write a text in double quotes",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "float_type": "write a number",
    "int_type": "write a whole number",
    "int_from_float": "write a whole number",
}
"""By pydantic's types of errors."""


def sentence(error: ValidationError, fields: Mapping[str, Mapping[str, Any]]) -> str:
    """The first mistakes, each with its place. `fields` has the fields of each object, by its place."""
    found = error.errors(include_url=False, include_input=False)
    parts = []
    for one in found[:_MOST]:
        *parents, last = ["", *map(str, one["loc"])]
        place = visible(".".join([*parents, last]).lstrip("."))[:100] or "the body"
        known = fields.get(".".join(parents).lstrip("."), {})
        parts.append(f"{place}: {_advice(one['type'], str(one['msg']), known)}")
    return "; ".join(parts)


def not_json(error: Exception) -> str:
    """Why a body is not JSON, with the place."""
    if isinstance(error, RecursionError):
        return "the body is not valid JSON: it is nested too deeply"
    return f"the body is not valid JSON: {visible(str(error)):.200}"


def _advice(kind: str, message: str, known: Mapping[str, Any]) -> str:
    if kind == "extra_forbidden":
        return f"this field is unknown; use {', '.join(known)}"
    plain = re.sub(r"^(Input|Value|String|List|Dictionary) (should|error,) ?", "", message)
    if message.startswith("Value error,"):
        return plain[:200]
    plain = (
        plain.replace(" after validation", "")
        .replace("greater than or equal to", "at least")
        .replace("less than or equal to", "at most")
    )
    return _ADVICE.get(kind, f"it must {plain}"[:200])
