"""Label text of the Prometheus exposition format: `name="value",…`."""

import re

# Names may be dotted, or quoted as the format allows since Prometheus 3.
_LABEL = re.compile(r'\s*(?:([A-Za-z_][\w.:]*)|"((?:[^"\\]|\\.)+)")\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_labels(text: str) -> dict[str, str]:
    r"""The labels, with `\\`, `\"` and `\n` unescaped. Braces around are tolerated; raises `ValueError`."""
    text = text.strip().removeprefix("{").removesuffix("}").rstrip()
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if not found:
            raise ValueError(f"not Prometheus labels from column {at + 1} on: {text[at : at + 40]!r}")
        labels[found[1] or _unescape(found[2])] = _unescape(found[3])
        at = found.end()
    return labels


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text
