"""Reads, merges and expands a configuration: all `--config` and `--set` become one tree.

`--set KEY=VALUE` replaces one value of a merged configuration:

exporters.file.path=out.jsonl          the parts of a key are joined by dots,
exporters::file::path=out.jsonl        or by ::, as in error messages
exporters.prometheus.label_names."host.name"=host
                                       a part with dots is in quotes, unless the configuration has it already
receivers.csv.files.0=/data/a.csv      a number is the index of a list; the index after the last one appends
receivers.csv.files=[a.csv, b.csv]     the value is YAML
"""

import re
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, NamedTuple

from otel_zernel.config.expand import CannotExpand, Expansion, ReadText, read_text, value_of
from otel_zernel.config.yaml12 import MAX_TEXT, Path, read_yaml
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


class LoadedConfig(NamedTuple):
    """A merged and expanded configuration, not yet validated."""

    tree: dict[str, Any]
    """Mappings with string keys, lists and scalars."""
    sources: Mapping[Path, str]
    """The file and line of each value (`config.yaml:12`), in the order of the files."""
    originals: Mapping[Path, str]
    """The text of each value that came from a reference or `--set` and was read as YAML: `0123` for 123."""
    warnings: tuple[str, ...]
    """One warning for each environment variable that is not set."""
    references: frozenset[Path] = frozenset()
    """The paths of the values that contain a reference (`${env:NAME}`)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one `--config` or `--set`."""

    tree: dict[str, Any] = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)
    originals: dict[Path, str] = field(default_factory=dict)

    def __or__(self, above: "Layer") -> "Layer":
        """Both layers merged. The values of `above` win."""
        tree = merge(self.tree, above.tree)
        kept = {path: text for path, text in self.originals.items() if path not in above.sources}
        sources = {
            path: source
            for path, source in above.sources.items()
            if path not in self.sources or not isinstance(at(above.tree, path), dict)
        }
        return Layer(tree, self.sources | sources, kept | above.originals)


def load(
    uris: Sequence[str], overrides: Sequence[str], environ: Mapping[str, str], read: ReadText = read_text
) -> LoadedConfig:
    """Merges all `--config` (`uris`), then all `--set` (`overrides`), and expands the references in the result.

    A URI is a path, `file:PATH`, `env:NAME`, `yaml:TEXT`, or `-` for standard input. The top of this file describes
    overrides. Later values win:
    mappings are merged, lists are replaced, and null resets a value. `read` reads every file.

    Raises `ConfigError` with every mistake.
    """
    merged, problems = merge_all(uris, overrides, environ, read)
    if problems:
        raise ConfigError(problems)
    present = paths(merged.tree)
    sources = {path: source for path, source in merged.sources.items() if path in present}
    originals = {path: text for path, text in merged.originals.items() if path in present}
    expansion = Expansion(environ, read)
    tree = expansion.expand(merged.tree)
    if expansion.failed:
        raise ConfigError(
            [Problem(joined(path), why, nearest_source(path, sources)) for path, why in expansion.failed.items()]
        )
    warnings = (_warning(name, nearest_source(path, sources)) for name, path in expansion.unset.items())
    return LoadedConfig(
        tree, sources, originals | expansion.originals, tuple(warnings), frozenset(expansion.references)
    )


def merge_all(
    uris: Sequence[str], overrides: Sequence[str], environ: Mapping[str, str], read: ReadText = read_text
) -> tuple[Layer, list[Problem]]:
    """All `--config` and `--set` that can be read as one layer, not expanded, and the mistakes of the others."""
    merged, problems = Layer(), list[Problem]()
    for uri in uris:
        try:
            merged |= _read(uri, environ, read)
        except ConfigError as error:
            problems += error.problems
    for text in overrides:
        try:
            merged = _overridden(merged, text)
        except ConfigError as error:
            problems += error.problems
    return merged, problems


def paths(tree: Any) -> set[Path]:
    """The paths of all values in the tree, including `()` for the tree itself."""
    files: set[Path] = set()
    rest: list[tuple[Path, Any]] = [((), tree)]
    while rest:
        path, value = rest.pop()
        files.add(path)
        if isinstance(value, dict):
            rest += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            rest += [((*path, index), item) for index, item in enumerate(value)]
    return files


def nearest_source(path: Path, sources: Mapping[Path, str]) -> str | None:
    """The file and line of the value, or of the innermost known value around it."""
    known = nearest(path, sources)
    return sources[known] if known else None


def nearest(path: Path, known: Container[Path]) -> Path | None:
    """The longest prefix of the path that is in `known`."""
    return next((path[:length] for length in range(len(path), 0, -1) if path[:length] in known), None)


def _read(uri: str, environ: Mapping[str, str], read: ReadText) -> Layer:
    """Reads one `--config`. A URI without a scheme is a path."""
    if uri == "-":
        return _layer(_standard_input(), "standard input")
    match = re.match(r"(file|env|yaml):", uri)
    scheme, rest = (match[1], uri[match.end() :]) if match else ("file", uri)
    if scheme == "yaml":
        return _unflatten(_layer(rest, "yaml"))
    if scheme == "env":
        if rest not in environ:
            message = f"environment variable {quoted(rest)} is not set; set it to the text of a configuration"
            raise ConfigError([Problem("", message, f"--config {uri}")])
        return _layer(environ[rest], uri)
    try:
        return _layer(read(rest), rest)
    except CannotExpand as error:
        raise ConfigError([Problem("", str(error))]) from error


@cache
def _standard_input() -> str:
    """The text of standard input. It can be read only once, so a reload gets the same text."""
    content = sys.stdin.buffer.read(MAX_TEXT + 1)
    try:
        if len(content) <= MAX_TEXT:
            return content.decode("utf-8-sig")
        reason = f"it is longer than {MAX_TEXT >> 20} MiB, the limit"
    except UnicodeDecodeError as error:
        reason = f"line {content[: error.start].count(10) + 1} is not UTF-8 text; save it as UTF-8"
    raise ConfigError([Problem("", f"cannot read standard input: {reason}")])


def _layer(text: str, name: str) -> Layer:
    document = read_yaml(text, name)
    if document.value is None:
        return Layer()
    if not isinstance(document.value, dict):
        message = "a configuration must be a mapping of sections (receivers, exporters, service, ...)"
        raise ConfigError([Problem("", message, f"{name}:{document.lines[()]}")])
    return Layer(document.value, {path: f"{name}:{line}" for path, line in document.lines.items()})


def _unflatten(layer: Layer) -> Layer:
    """Nests keys such as `a::b`: `a::b: v` becomes `a: {b: v}`, as the OpenTelemetry Collector does for `yaml:`."""
    if not any("::" in key for key in layer.tree):
        return layer
    result = Layer()
    for key, value in layer.tree.items():
        result |= _nested(tuple(key.split("::")), value, "--config yaml:")
    return result


def _overridden(layer: Layer, text: str) -> Layer:
    """The layer with one `--set`. Raises `ConfigError`."""
    override = parse_override(text)
    path, value = override.path(layer.tree), value_of(override.text)
    sources = dict(layer.sources)
    for prefix in prefixes(path):
        if prefix not in sources or (prefix == path and not isinstance(value, dict)):
            sources[prefix] = override.source
    originals = {path_: kept for path_, kept in layer.originals.items() if path_ != path[: len(path_)]}
    if value is not None:
        originals[path] = override.text
    return Layer(replaced(layer.tree, path, value), sources, originals)


def _nested(path: tuple[str, ...], value: Any, source: str) -> Layer:
    tree = reduce(lambda inner, key: {key: inner}, reversed(path), value)
    return Layer(tree, {path[:length]: source for length in range(1, len(path) + 1)})


def at(tree: Any, path: Path) -> Any:
    """The value at the path. None if the path does not exist."""
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _warning(name: str, source: str | None) -> str:
    advice = f"set it, or write ${{{name}:-default}}"
    return str(Problem("", f"environment variable {quoted(name)} is not set and is read as empty; {advice}", source))
