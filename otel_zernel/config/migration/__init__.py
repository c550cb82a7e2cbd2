"""Names of the OpenTelemetry Collector that do not exist here: some have a hint, and some keys have no effect."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from otel_zernel.config.yaml12 import Path, read_yaml


def hint(path: Path) -> str | None:
    """One sentence, if the OpenTelemetry Collector has the type, section or key at the path. Else None."""
    return _text(hints(), path)


def lack_of_effect(path: Path) -> str | None:
    """One sentence, if the OpenTelemetry Collector has the key at the path, and nobody misses it. Else None."""
    return _text(keys_without_effect(), path)


@cache
def hints() -> Mapping[str, str]:
    """The hints by their patterns. Read at the first mistake only."""
    return _table("otelcol.yaml")


@cache
def keys_without_effect() -> Mapping[str, str]:
    """Why a key has no effect, by its pattern. Read at the first mistake only."""
    return _table("without_effect.yaml")


def _table(name: str) -> Mapping[str, str]:
    text = (files("otel_zernel.config.migration") / name).read_text("utf-8")
    table: dict[str, str] = read_yaml(text, name).value
    return table


def _text(table: Mapping[str, str], path: Path) -> str | None:
    names = [str(part) for part in path]
    if len(names) > 1 and names[0] != "service":
        names[1] = names[1].partition("/")[0]  # the type of the id
    texts = (text for pattern, text in table.items() if _matches(pattern.split("::"), names))
    return next(texts, None)


def _matches(pattern: list[str], names: list[str]) -> bool:
    return len(pattern) == len(names) and all(map(fnmatchcase, names, pattern))
