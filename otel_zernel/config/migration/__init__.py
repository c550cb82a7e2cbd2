"""Hints for users of the OpenTelemetry Collector: names that do not exist here, and the words to write instead."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from otel_zernel.config.yaml12 import Path, read_yaml


def hint(path: Path) -> str | None:
    """One sentence, if the OpenTelemetry Collector has the type, section or key at the path. Else None."""
    names = [str(part) for part in path]
    if len(names) > 1 and names[0] != "service":
        names[1] = names[1].partition("/")[0]  # the type of the id
    texts = (text for pattern, text in hints().items() if _matches(pattern.split("::"), names))
    return next(texts, None)


@cache
def hints() -> Mapping[str, str]:
    """The hints by their patterns. Read at the first mistake only."""
    text = (files("otel_zernel.config.migration") / "otelcol.yaml").read_text("utf-8")
    table: dict[str, str] = read_yaml(text, "otelcol.yaml").value
    return table


def _matches(pattern: list[str], names: list[str]) -> bool:
    return len(pattern) == len(names) and all(map(fnmatchcase, names, pattern))
