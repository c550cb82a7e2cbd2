"""The installed component types: the entry points `otel_zernel.<kind>`, imported only when they are used."""

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoints, entry_points
from importlib.resources import files
from typing import Self

from otel_zernel.component import Component, Exporter, Extension, Kind, Processor, Receiver, Scraper
from otel_zernel.delivery_config import RemoteExporterConfig
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
    """Component classes by kind and type. Types with the same loader are aliases."""

    def __init__(self, entries: Mapping[Kind, Mapping[str, Loader]]) -> None:
        self._entries = entries

    @classmethod
    def installed(cls, find: Callable[..., EntryPoints] = entry_points) -> Self:
        """The types of all installed packages. If two packages define a type, the first on `sys.path` wins."""
        points = find()  # of all groups, because each call reads the metadata of every installed package
        entries: dict[Kind, dict[str, Loader]] = {}
        for kind in KINDS:
            loaders: dict[str, Loader] = {}
            entry = entries.setdefault(kind, {})
            for point in points.select(group=f"otel_zernel.{kind}"):
                entry.setdefault(point.name, loaders.setdefault(point.value, point.load))
        return cls(entries)

    def including(self, kind: Kind, type_: str, cls: ComponentClass) -> Self:
        """The same types, and one more, which no package installs."""
        return type(self)({**self._entries, kind: {**self._entries.get(kind, {}), type_: lambda: cls}})

    def types(self, kind: Kind) -> list[str]:
        """The names of all types, sorted, including aliases."""
        return sorted(self._entries.get(kind, {}))

    def aliases(self, kind: Kind) -> dict[str, list[str]]:
        """The aliases of each type, by its main name, which has the most underscores: `otlp_http`, not `otlphttp`."""
        names: dict[Loader, list[str]] = {}
        for name, loader in self._entries.get(kind, {}).items():
            names.setdefault(loader, []).append(name)
        by_main_name = {max(group, key=lambda name: name.count("_")): group for group in names.values()}
        return {name: sorted(set(group) - {name}) for name, group in sorted(by_main_name.items())}

    def load(self, kind: Kind, type_: str) -> ComponentClass:
        """The class of the type. Raises `ConfigError` if the type is unknown, or if its package is broken."""
        loader = self._entries.get(kind, {}).get(type_)
        if loader is None:
            hint = suggestion(type_, self.types(kind), "types")
            raise ConfigError([Problem(kind, f"unknown type {quoted(type_)}{hint}")])
        try:
            cls = loader()
        except Exception as error:  # the import of a third-party module may raise anything
            sentence = f"type {quoted(type_)} cannot be imported: {type(error).__name__}: {one_line(error)}"
            raise ConfigError([Problem(kind, sentence)]) from error
        if not (isinstance(cls, type) and issubclass(cls, _CONTRACTS[kind])):
            names = one_line(cls)
            raise ConfigError(
                [Problem(kind, f"type {quoted(type_)} is not a class of {kind}: its entry point names {names}")]
            )
        if issubclass(cls, Exporter) and (cls.delivery == "remote") != issubclass(cls.Config, RemoteExporterConfig):
            name = quoted(type_)
            raise ConfigError(
                [Problem(kind, f"type {name}: its delivery must be 'remote' exactly if its Config is remote")]
            )
        return cls

    def sample(self, kind: Kind, type_: str) -> str:
        """The block of the type in its package's `sample.yaml`, with comments. An alias has the block of its main name.

        Raises `ConfigError` for an unknown type or a missing sample.
        """
        main_name = next((name for name, others in self.aliases(kind).items() if type_ in others), type_)
        block = _top_level_blocks(self._resource(kind, type_, "sample.yaml")).get(main_name)
        if block is None:
            raise ConfigError([Problem(kind, f"type {quoted(type_)} has no block in its sample.yaml")])
        return block

    def readme(self, kind: Kind, type_: str) -> str:
        """The README of the type's package. Raises `ConfigError` for an unknown type or a missing README."""
        return self._resource(kind, type_, "README.md")

    def _resource(self, kind: Kind, type_: str, name: str) -> str:
        spec = sys.modules[self.load(kind, type_).__module__].__spec__
        try:
            return (files(spec.parent if spec and spec.parent else "") / name).read_text("utf-8")
        except (AttributeError, TypeError, ValueError, OSError) as error:
            raise ConfigError([Problem(kind, f"type {quoted(type_)} has no {name} in its package")]) from error


def _top_level_blocks(text: str) -> dict[str, str]:
    """The text of each top-level key of a YAML file, with the comments above the key."""
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
