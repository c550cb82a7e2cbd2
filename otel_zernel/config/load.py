"""Reads, merges and expands a configuration: all `--config` and `--set` become one tree."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from otel_zernel.config.expand import CannotExpand, Expansion, ReadText, read_text, value_of
from otel_zernel.config.yaml12 import Path, read_yaml
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.text import joined, quoted


@dataclass(frozen=True, slots=True)
class LoadedConfig:
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

    A URI is a path, `file:PATH`, `env:NAME` or `yaml:TEXT`. An override is `a.b.c=v` or `a::b::c=v`. Later values win:
    mappings are merged, lists are replaced, and null resets a value. `read` reads every file.

    Raises `ConfigError` with every mistake.
    """
    layers, problems = _each(lambda uri: _read(uri, environ, read), uris)
    set_layers, set_problems = _each(_override, overrides)
    if problems or set_problems:
        raise ConfigError(problems + set_problems)
    merged = reduce(Layer.__or__, layers + set_layers, Layer())
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


def merge(below: Any, above: Any) -> Any:
    """Merges two trees: mappings key by key. Any other value of `above` replaces the one of `below`."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: merge(below[key], value) if key in below else value for key, value in above.items()}


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


def _each(read: Callable[[str], Layer], texts: Sequence[str]) -> tuple[list[Layer], list[Problem]]:
    layers: list[Layer] = []
    problems: list[Problem] = []
    for text in texts:
        try:
            layers.append(read(text))
        except ConfigError as error:
            problems += error.problems
    return layers, problems


def _read(uri: str, environ: Mapping[str, str], read: ReadText) -> Layer:
    """Reads one `--config`. A URI without a scheme is a path."""
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


def _override(text: str) -> Layer:
    """Reads `a.b.c=v`, or `a::b::c=v` if a key contains a dot."""
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("::" if "::" in key else "."))
    if not equals or not all(path):
        raise ConfigError([Problem("", f"invalid --set {quoted(text)}; write a.b.c=value or a::b::c=value")])
    parsed = value_of(value)
    layer = _nested(path, parsed, f"--set {key}")
    return replace(layer, originals={path: value} if parsed is not None else {})


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
