"""Reads YAML 1.2 (core schema), with the line of each value.

PyYAML scans and parses the text. The values are made here, because PyYAML follows YAML 1.1, where `no` is a boolean,
`0123` is octal, and `10:30` is the number 630.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from otel_zernel.errors import ConfigError, Problem
from otel_zernel.text import one_line, quoted

Path = tuple[str | int, ...]
"""The keys and list indexes from the root to a value."""

MAX_TEXT = 4 << 20
"""Characters in one file."""
MAX_DEPTH = 100
"""Levels of nesting."""
MAX_ALIASED = 100_000
"""The most values that the aliases of one document may repeat. It stops a "billion laughs" attack."""

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
    """The line of every value, or of its key. The first line is 1."""


def read_yaml(text: str, name: str) -> Document:
    """The single document in the text. An empty text is null. Problems refer to the text by `name`.

    Raises `ConfigError` with the first syntax error, or with all duplicate keys and unknown tags.
    """
    if len(text) > MAX_TEXT:
        raise ConfigError([Problem("", f"the text is longer than {MAX_TEXT >> 20} MiB, the limit", name)])
    try:
        text.encode()  # fails on lone surrogates, which stand for bytes that are not UTF-8
        reader = _Reader(text, name)
        document = reader.document()
    except UnicodeEncodeError:
        raise ConfigError([Problem("", "the text is not UTF-8 text; encode it as UTF-8", name)]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(_too_deep(text) or error, text, name)]) from error
    except yaml.YAMLError as error:
        message = "the text has control characters, which YAML does not allow; remove them"
        raise ConfigError([Problem("", message, name)]) from error
    if reader.problems:
        raise ConfigError(reader.problems)
    return document


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, name: str) -> Problem:
    mark: Any = error.problem_mark or error.context_mark
    message = f"not valid YAML: {one_line(error.problem or error.context)}"
    if mark is None:
        return Problem("", message, name)
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    if line[mark.column : mark.column + 1] == "\t":
        message += " (there is a tab; use spaces to indent YAML)"
    if line[max(mark.column - 1, 0) : mark.column + 1] == "${":
        message += " (inside [] and {}, put ${...} in quotes)"
    return Problem("", message, f"{name}:{mark.line + 1}:{mark.column + 1}")


def _too_deep(text: str) -> yaml.MarkedYAMLError | None:
    """The error at the first value below `MAX_DEPTH`, if the text is valid up to there.

    PyYAML's parser in C reads ahead, so its own limit (1,000 levels since 6.0.4) may be reached first. Its parser in
    Python has no limit.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH + 1:
                    return _nested_too_deep(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        pass
    return None


def _nested_too_deep(event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, f"nested deeper than {MAX_DEPTH} levels", event.start_mark)


def read_scalar(text: str) -> Any:
    """The value of an unquoted scalar in the core schema."""
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
    """Makes values from the events of PyYAML's parser."""

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
            self._refuse("a second document (---) begins here; write a single one", after)
        return Document(value, self._lines)

    def _value(self, event: Any, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise _nested_too_deep(event)
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
            self._refuse(f"alias {quoted(event.anchor)} has no anchor; define it before, with &", event)
            return None
        value, size = self._anchors[event.anchor]
        self._aliased += size
        self._values += size
        if self._aliased > MAX_ALIASED:
            raise yaml.MarkedYAMLError(None, None, f"aliases repeat more than {MAX_ALIASED:,} values", event.start_mark)
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
            self._refuse(f"the value does not match its tag !!{tag}", event)
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
                line = self._lines[*path, key.value]
                self._refuse(f"duplicate key {quoted(key.value)}; it is already in line {line}", key)
            self._lines.setdefault((*path, key.value), _line(key))
            own[key.value] = self._value(next(self._events), (*path, key.value))
        return merged | own

    def _merge(self, value: Any, key: Any) -> dict[str, Any]:
        """The keys that `<<` merges: of one mapping, or of a list of mappings where the first one wins."""
        mappings = value if isinstance(value, list) else [value]
        merged: dict[str, Any] = {}
        for mapping in reversed(mappings):
            if isinstance(mapping, dict):
                merged |= mapping
            else:
                self._refuse("the value of << must be a mapping or a list of mappings", key)
        return merged

    def _check_tag(self, event: Any, tag: str) -> None:
        if self._tag(event) not in (None, tag):
            self._refuse(f"the value does not match its tag {event.tag}", event)

    def _tag(self, event: Any) -> str | None:
        if event.tag is None or event.tag == "!":
            return "str" if event.tag and isinstance(event, yaml.ScalarEvent) else None
        if event.tag not in _TAGS:
            self._refuse(f"tag {quoted(event.tag)} is not supported; remove it", event)
        return _TAGS.get(event.tag)

    def _refuse(self, message: str, event: Any) -> None:
        self.problems.append(Problem("", message, f"{self._name}:{_line(event)}"))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
