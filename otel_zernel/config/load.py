"""Reads, merges and expands a configuration: all `--config` and `--set` become one tree."""

import re
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, NamedTuple

from otel_zernel.config.expand import CannotExpand, Expansion, ReadText, read_text, value_of
from otel_zernel.config.override import merge, parse_override, prefixes, replaced
from otel_zernel.config.yaml12 import MAX_TEXT, Path, read_yaml
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.text import joined, quoted


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

    A URI is a path, `file:PATH`, `env:NAME`, `yaml:TEXT`, or `-` for standard input. `config/override.py` describes
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
    found: set[Path] = set()
    rest: list[tuple[Path, Any]] = [((), tree)]
    while rest:
        path, value = rest.pop()
        found.add(path)
        if isinstance(value, dict):
            rest += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            rest += [((*path, index), item) for index, item in enumerate(value)]
    return found


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
    originals = {one: kept for one, kept in layer.originals.items() if one != path[: len(one)]}
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
