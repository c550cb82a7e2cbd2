"""Names of the OpenTelemetry Collector that do not exist here: some have a hint, and some keys have no effect."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from otel_zernel.config.yaml12 import Path, read_yaml


def hint(path: Path) -> str | None:
    """One sentence, if the OpenTelemetry Collector has the type, section or key at the path. Else None."""
    return _text(texts("otelcol.yaml"), path)


def lack_of_effect(path: Path) -> str | None:
    """One sentence, if the OpenTelemetry Collector has the key at the path, and nobody misses it. Else None."""
    return _text(texts("without_effect.yaml"), path)


@cache
def texts(file: str) -> Mapping[str, str]:
    """The texts of one of the files by their patterns. Read at the first mistake only."""
    table: dict[str, str] = read_yaml((files("otel_zernel.config.migration") / file).read_text("utf-8"), file).value
    return table


def _text(table: Mapping[str, str], path: Path) -> str | None:
    names = [str(part) for part in path]
    if len(names) > 1 and names[0] != "service":
        names[1] = names[1].partition("/")[0]  # the type of the id
    patterns = ((pattern.split("::"), text) for pattern, text in table.items())
    matching = (text for parts, text in patterns if len(parts) == len(names) and all(map(fnmatchcase, names, parts)))
    return next(matching, None)
