"""Reads YAML as version 1.2 has it (its core schema), and remembers lines.

PyYAML scans and parses; the values are made here, because its own follow YAML 1.1: there `no` is a boolean, `0123`
octal and `10:30` the number 630.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from otel_zernel.errors import ConfigError, Problem
from otel_zernel.text import one_line, quoted

Path = tuple[str | int, ...]
"""The keys and list indexes that lead to a value."""

MAX_TEXT = 4 << 20
"""Characters in one file."""
MAX_DEPTH = 100
"""Levels of nesting."""
MAX_ALIASED = 100_000
"""Values that aliases may repeat in one document: the guard against the "billion laughs"."""

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_NUMBER = 4000
"""Characters. Python itself refuses to read an integer of more than 4,300 digits."""
_TAGS = {"tag:yaml.org,2002:" + name: name for name in ("str", "null", "bool", "int", "float", "map", "seq")}


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document. Mappings have string keys only."""

    value: Any
    lines: dict[Path, int]
    """The line, from 1, of every value, or of its key."""


def read_yaml(text: str, name: str) -> Document:
    """The only document in the text; an empty text is null. `name` is what problems call the text.

    Raises `ConfigError`: with the first error of syntax, or with every duplicate key and unknown tag.
    """
    if len(text) > MAX_TEXT:
        raise ConfigError([Problem("", f"longer than {MAX_TEXT >> 20} MiB, which no configuration may be", name)])
    try:
        text.encode()  # a lone surrogate, from an argument or variable that is not UTF-8
        reader = _Reader(text, name)
        document = reader.document()
    except UnicodeEncodeError:
        raise ConfigError([Problem("", "not UTF-8 text", name)]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(error, text, name)]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Problem("", "not text: it has control characters", name)]) from error
    if reader.problems:
        raise ConfigError(reader.problems)
    return document


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, name: str) -> Problem:
    mark: Any = error.problem_mark or error.context_mark
    sentence = f"not valid YAML: {one_line(error.problem or error.context)}"
    if mark is None:
        return Problem("", sentence, name)
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    if line[mark.column : mark.column + 1] == "\t":
        sentence += " (a tab; YAML is indented by spaces)"
    if line[max(mark.column - 1, 0) : mark.column + 1] == "${":
        sentence += " (inside [] and {}, ${...} needs quotes)"
    return Problem("", sentence, f"{name}:{mark.line + 1}:{mark.column + 1}")


def read_scalar(text: str) -> Any:
    """The value of an unquoted scalar by the core schema."""
    if len(text) > _LONGEST_NUMBER:
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text[0] in "tT"
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(re.sub(r"\.(?=[iInN])", "", text))
    return text


class _Reader:
    """Makes values from the parser's events."""

    def __init__(self, text: str, name: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self._name = name
        self._lines: dict[Path, int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0
        self._aliased = 0
        self.problems: list[Problem] = []

    def document(self) -> Document:
        next(self._events)  # the stream's start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return Document(None, {})
        value = self._value(next(self._events), ())
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._refuse("a second document (---) begins here; a configuration is one", after)
        return Document(value, self._lines)

    def _value(self, event: Any, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        self._lines.setdefault(path, _line(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._values
        self._values += 1
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(event, path)
        else:
            value = self._mapping(event, path)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._values - before
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            self._refuse(f"alias {quoted(event.anchor)} has no anchor before it", event)
            return None
        value, size = self._anchors[event.anchor]
        self._aliased += size
        self._values += size
        if self._aliased > MAX_ALIASED:
            raise yaml.MarkedYAMLError(None, None, "aliases repeat too much", event.start_mark)
        return value

    def _scalar(self, event: Any) -> Any:
        tag = self._tag(event)
        if tag is None:
            return read_scalar(event.value) if event.implicit[0] else event.value
        if tag == "str":
            return event.value
        value = read_scalar(event.value)
        wanted = {"null": type(None), "bool": bool, "int": int, "float": float}.get(tag)
        if tag == "float" and type(value) is int:
            return float(event.value)
        if type(value) is not wanted:
            self._refuse(f"this is no !!{tag}", event)
        return value

    def _sequence(self, event: Any, path: Path) -> list[Any]:
        self._check_tag(event, "seq")
        items: list[Any] = []
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(item, (*path, len(items))))
        return items

    def _mapping(self, event: Any, path: Path) -> dict[str, Any]:
        self._check_tag(event, "map")
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise yaml.MarkedYAMLError(None, None, "a key must be plain text", key.start_mark)
            if key.value == "<<" and key.implicit[0]:
                merged |= self._merge(self._value(next(self._events), (*path, "<<")), key)
                continue
            if key.value in own:
                self._refuse(f"key {quoted(key.value)} is already there, in line {self._lines[*path, key.value]}", key)
            self._lines.setdefault((*path, key.value), _line(key))
            own[key.value] = self._value(next(self._events), (*path, key.value))
        return merged | own

    def _merge(self, value: Any, key: Any) -> dict[str, Any]:
        """What `<<` brings in: a mapping, or a list of them, of which the first wins."""
        mappings = value if isinstance(value, list) else [value]
        together: dict[str, Any] = {}
        for mapping in reversed(mappings):
            if isinstance(mapping, dict):
                together |= mapping
            else:
                self._refuse("<< takes a mapping or a list of mappings", key)
        return together

    def _check_tag(self, event: Any, tag: str) -> None:
        if self._tag(event) not in (None, tag):
            self._refuse(f"this is no {event.tag}", event)

    def _tag(self, event: Any) -> str | None:
        if event.tag is None or event.tag == "!":
            return "str" if event.tag and isinstance(event, yaml.ScalarEvent) else None
        if event.tag not in _TAGS:
            self._refuse(f"tag {quoted(event.tag)} is not allowed", event)
        return _TAGS.get(event.tag)

    def _refuse(self, message: str, event: Any) -> None:
        self.problems.append(Problem("", message, f"{self._name}:{_line(event)}"))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
