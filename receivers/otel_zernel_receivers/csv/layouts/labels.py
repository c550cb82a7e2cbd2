"""Parses labels in the Prometheus exposition format: `name="value",…`."""

import re

# Names may contain dots, or be quoted (allowed since Prometheus 3).
_LABEL = re.compile(r'\s*(?:([A-Za-z_][\w.:]*)|"((?:[^"\\]|\\.)+)")\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_labels(text: str) -> dict[str, str]:
    r"""The labels, with `\\`, `\"` and `\n` unescaped. Enclosing braces are accepted. Raises `ValueError`."""
    text = text.strip().removeprefix("{").removesuffix("}").rstrip()
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if not found:
            raise ValueError(
                f"not Prometheus labels from character {position + 1} on: {text[position : position + 40]!r}"
            )
        labels[found[1] or _unescape(found[2])] = _unescape(found[3])
        position = found.end()
    return labels


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
