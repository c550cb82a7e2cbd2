"""Which components are installed: the entry points `otel_zernel.<kind>`, loaded only when asked for."""

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Self

from otel_zernel.component import Component, Exporter, Extension, Kind, Processor, Receiver, Scraper
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.text import one_line, quoted, suggestion

KINDS: tuple[Kind, ...] = ("receivers", "processors", "exporters", "extensions")

ComponentClass = type[Component]
Loader = Callable[[], ComponentClass]

_CONTRACTS: Mapping[Kind, tuple[type[Component], ...]] = {
    "receivers": (Receiver, Scraper),
    "processors": (Processor,),
    "exporters": (Exporter,),
    "extensions": (Extension,),
}


class Registry:
    """Component classes by kind and type. Types that share one loader are aliases of each other."""

    def __init__(self, entries: Mapping[Kind, Mapping[str, Loader]]) -> None:
        self._entries = entries

    @classmethod
    def installed(cls) -> Self:
        """What the installed packages offer. Where two offer one type, the first on `sys.path` has it."""
        entries: dict[Kind, dict[str, Loader]] = {}
        for kind in KINDS:
            loaders: dict[str, Loader] = {}
            offered = entries.setdefault(kind, {})
            for point in entry_points(group=f"otel_zernel.{kind}"):
                offered.setdefault(point.name, loaders.setdefault(point.value, point.load))
        return cls(entries)

    def types(self, kind: Kind) -> list[str]:
        """The types' names, sorted, aliases included."""
        return sorted(self._entries.get(kind, {}))

    def aliases(self, kind: Kind) -> dict[str, list[str]]:
        """The other names of each type, by its proper one: the most spelled-out (`otlp_http`, not `otlphttp`)."""
        names: dict[Loader, list[str]] = {}
        for name, loader in self._entries.get(kind, {}).items():
            names.setdefault(loader, []).append(name)
        proper = {max(group, key=lambda name: name.count("_")): group for group in names.values()}
        return {name: sorted(set(group) - {name}) for name, group in sorted(proper.items())}

    def load(self, kind: Kind, type_: str) -> ComponentClass:
        """The type's class. Raises `ConfigError` if there is none, or if its plugin is broken."""
        loader = self._entries.get(kind, {}).get(type_)
        if loader is None:
            hint = suggestion(type_, self.types(kind), "types")
            raise ConfigError([Problem(kind, f"unknown type {quoted(type_)}{hint}")])
        try:
            cls = loader()
        except Exception as error:  # a stranger's module may raise anything when imported
            sentence = f"type {quoted(type_)} cannot be imported: {type(error).__name__}: {one_line(error)}"
            raise ConfigError([Problem(kind, sentence)]) from error
        if not (isinstance(cls, type) and issubclass(cls, _CONTRACTS[kind])):
            raise ConfigError([Problem(kind, f"type {quoted(type_)} is {one_line(cls)}, which is none of the {kind}")])
        return cls

    def sample(self, kind: Kind, type_: str) -> str:
        """The type's block of its folder's `sample.yaml`, comments kept; an alias has its proper name's block.

        Raises `ConfigError` for an unknown type or a missing sample.
        """
        proper = next((name for name, others in self.aliases(kind).items() if type_ in others), type_)
        block = _top_level_blocks(self._resource(kind, type_, "sample.yaml")).get(proper)
        if block is None:
            raise ConfigError([Problem(kind, f"type {quoted(type_)} has no block in its sample.yaml")])
        return block

    def readme(self, kind: Kind, type_: str) -> str:
        """The README of the type's folder. Raises `ConfigError` for an unknown type or a missing README."""
        return self._resource(kind, type_, "README.md")

    def _resource(self, kind: Kind, type_: str, name: str) -> str:
        spec = sys.modules[self.load(kind, type_).__module__].__spec__
        try:
            return (files(spec.parent) / name).read_text("utf-8")  # type: ignore[union-attr,arg-type]  # see except
        except (AttributeError, TypeError, ValueError, OSError) as error:
            raise ConfigError([Problem(kind, f"type {quoted(type_)} comes without a {name}")]) from error


def _top_level_blocks(text: str) -> dict[str, str]:
    """The lines of each top-level key, with the comments above it."""
    blocks: dict[str, str] = {}
    above, key = "", ""
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            above += line
            continue
        if line[0].isalpha():
            key = line.partition(":")[0]
        blocks[key] = blocks.get(key, "") + above + line
        above = ""
    return {key: block.strip("\n") + "\n" for key, block in blocks.items() if key}
