"""Reads, merges and expands a configuration: from `--config` and `--set` to one plain tree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
"""The keys and list indexes that lead to a value."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One merged and expanded configuration, not yet validated."""

    tree: dict[str, Any]
    sources: Mapping[Path, str]
    """Where a value was written: `config.yaml:12`."""
    originals: Mapping[Path, str]
    """The text of values that came by expansion or `--set` and were read as YAML: `0123` in place of 123."""
    warnings: tuple[str, ...]
    """Variables that are not set."""


def load(uris: Sequence[str], overrides: Sequence[str], environ: Mapping[str, str]) -> Loaded:
    """The configuration of all `--config` (`uris`: paths, `file:PATH`, `env:NAME`, `yaml:TEXT`), later ones on top,
    then all `--set` (`overrides`: `a.b.c=v` or `a::b::c=v`). Maps merge, lists replace, null erases.

    Raises `ConfigError` with every mistake.
    """
    raise NotImplementedError
