"""`--set KEY=VALUE`: replaces one value of a merged configuration.

exporters.file.path=out.jsonl          the parts of a key are joined by dots,
exporters::file::path=out.jsonl        or by ::, as in error messages
exporters.prometheus.label_names."host.name"=host
                                       a part with dots is in quotes, unless the configuration has it already
receivers.csv.files.0=/data/a.csv      a number is the index of a list; the index after the last one appends
receivers.csv.files=[a.csv, b.csv]     the value is YAML
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from otel_zernel.config.yaml12 import Path
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.text import joined, quoted

_TOKEN = re.compile(r"""(?P<quoted>"[^"]*"|'[^']*')|(?P<separator>::|\.)|(?P<equals>=)|(?P<text>[^.:='"]+|:)""")


@dataclass(frozen=True, slots=True)
class Override:
    """One `--set`."""

    parts: tuple[str, ...]
    """The parts of the key."""
    dotted: bool
    """Whether dots separate them, so that some of them may be one key of the configuration."""
    text: str
    """The value, not yet read as YAML."""
    source: str
    """For error messages: `--set a.b`."""

    def path(self, tree: Any) -> Path:
        """The path in the tree. Raises `ConfigError` if a list on the way has no such item."""
        path: list[str | int] = []
        rest = self.parts
        while rest:
            items = [] if tree is None and path and rest[0] == "0" else tree  # the first item of a new list
            step, used = self._index(items, rest[0], path) if isinstance(items, list) else self._key(tree, rest)
            path.append(step)
            tree, rest = _child(tree, step), rest[used:]
        return tuple(path)

    def _key(self, tree: Any, rest: tuple[str, ...]) -> tuple[str | int, int]:
        """The key at the begin of `rest`, and its parts: the longest one that the tree has, else the first part."""
        if self.dotted and isinstance(tree, dict):
            for length in range(len(rest), 1, -1):
                if (key := ".".join(rest[:length])) in tree:
                    return key, length
        return rest[0], 1

    def _index(self, items: list[Any], part: str, path: list[str | int]) -> tuple[int, int]:
        """The index that the first part of a rest is, and 1."""
        if part.isascii() and part.isdigit() and int(part) <= len(items):
            return int(part), 1
        raise ConfigError([Problem("", _no_item(joined(path), quoted(part), len(items)), self.source)])


def _no_item(path: str, part: str, length: int) -> str:
    number = f"{length} item" if length == 1 else f"{length} items"
    return (
        f"{path} has {number}, and {part} is not the index of one; the first is 0, and {length} appends one; "
        "or set the whole list, such as [a, b]"
    )


def parse_override(text: str) -> Override:
    """Reads `a.b.c=value`. Raises `ConfigError`."""
    separators, pieces, end = _scan(text)
    separator = "::" if "::" in separators else "."
    parts = [""]
    for piece, is_separator in pieces:
        if is_separator and piece == separator:
            parts.append("")
        else:
            parts[-1] += piece
    names = tuple(part.strip() for part in parts)
    if end is None or not all(names):
        raise ConfigError([Problem("", _unreadable(quoted(text)))])
    return Override(names, separator == ".", text[end + 1 :], f"--set {text[:end]}")


def _unreadable(text: str) -> str:
    return f'invalid --set {text}; write a.b.c=value, a::b::c=value, a."key.with.dots"=value, or a.list.0=value'


def _scan(text: str) -> tuple[set[str], list[tuple[str, bool]], int | None]:
    """The separators outside quotes, the pieces of the key and whether each is a separator, and the index of `=`."""
    separators: set[str] = set()
    pieces: list[tuple[str, bool]] = []
    at = 0
    while token := _TOKEN.match(text, at):
        if token["equals"]:
            return separators, pieces, at
        if token["separator"]:
            separators.add(token[0])
        pieces.append((token[0][1:-1] if token["quoted"] else token[0], bool(token["separator"])))
        at = token.end()
    return separators, pieces, None


def replaced(tree: Any, path: Path, value: Any) -> Any:
    """A copy of the tree with the value at the path. Mappings are merged. Missing keys and list items are added."""
    if not path:
        return merge(tree, value)
    step, rest = path[0], path[1:]
    child = replaced(_child(tree, step), rest, value)
    if isinstance(step, int):
        items = tree or []
        return [*items[:step], child, *items[step + 1 :]]
    return {**(tree if isinstance(tree, dict) else {}), step: child}


def prefixes(path: Path) -> Iterator[Path]:
    """All beginnings of the path, the shortest first, with the path itself."""
    return (path[:length] for length in range(1, len(path) + 1))


def merge(below: Any, above: Any) -> Any:
    """Merges two trees: mappings key by key. Any other value of `above` replaces the one of `below`."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: merge(below[key], value) if key in below else value for key, value in above.items()}


def _child(tree: Any, step: str | int) -> Any:
    try:
        return tree[step]
    except (KeyError, IndexError, TypeError):
        return None
