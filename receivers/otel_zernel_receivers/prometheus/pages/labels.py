"""Reads the name and the labels of a sample."""

import re

from otel_zernel_receivers.prometheus.pages.page import NAME, Labels

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    r'[ \t]*+(?:([a-zA-Z_][a-zA-Z0-9_]*+)|"((?:[^"\\]++|\\.)*+)")[ \t]*+'
    r'(?:(=)[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+)?(?:,|$)'
)
_SIMPLE = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\]*+)"(?:,|$)')
"""A label as nearly all programs write it."""
_ESCAPE = re.compile(r"\\([\\\"n])")


def read_labels(key: bytes) -> Labels:
    """The labels in `name{a="b"}` or `{"name",a="b"}`, with the name as `__name__`.

    Raises `ValueError` if the text has another form, is not UTF-8, or repeats a label.
    """
    name, brace, rest = key.decode().partition("{")
    name = name.rstrip(" \t")
    labels: Labels = {}
    if name:
        if not _NAME.fullmatch(name):
            raise ValueError("not a name of a metric")
        labels[NAME] = name
    if brace:
        _read_pairs(rest.removesuffix("}").rstrip(" \t"), labels)
    if NAME not in labels:
        raise ValueError("no name of a metric")
    return labels


def _read_pairs(text: str, labels: Labels) -> None:
    pairs = _SIMPLE.findall(text)
    size = sum(len(name) + len(value) + 4 for name, value in pairs)
    if size == len(text) + (not text.endswith(",")):  # nothing stands between them
        before = len(labels)
        labels.update(pairs)
        if len(labels) != before + len(pairs):
            raise ValueError("a label that stands twice")
        return
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if not match:
            raise ValueError("not a label")
        bare, quoted, equals, value = match.groups()
        name = bare if quoted is None else unescape(quoted)
        if equals is None:  # a quoted name of a metric stands without a value
            name, value = NAME, quoted
        if value is None or name in labels or not name:
            raise ValueError("not a label, or a label that stands twice")
        labels[name] = unescape(value)
        position = match.end()


def unescape(text: str) -> str:
    """The text without the escapes `\\\\`, `\\"` and `\\n`."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
