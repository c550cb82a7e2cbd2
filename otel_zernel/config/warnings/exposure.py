"""Finds configuration files that hold secrets in plain text and that every user of the machine may read."""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

from otel_zernel.config.load import LoadedConfig
from otel_zernel.config.yaml12 import Path
from otel_zernel.text import joined, quoted

_MOST_NAMED = 3
"""Secrets that a warning names."""


def exposure_warnings(loaded: LoadedConfig, sections: Mapping[Path, Any]) -> list[str]:
    """One warning for each such file. `sections` are the validated models by their path."""
    by_file: dict[str, list[Path]] = {}
    for section, model in sections.items():
        for path in _secrets(model, section):
            if path not in loaded.references and (source := loaded.sources.get(path)):
                by_file.setdefault(source.rpartition(":")[0], []).append(path)
    return [_warning(file, paths) for file, paths in by_file.items() if _is_readable_by_all(file)]


def _secrets(value: Any, path: Path) -> Iterator[Path]:
    """The paths of the secrets that are set."""
    if isinstance(value, SecretStr | SecretBytes):
        if value.get_secret_value():
            yield path
    elif isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield from _secrets(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index))


def _is_readable_by_all(file: str) -> bool:
    try:
        mode = FilePath(file).stat().st_mode
    except OSError:  # `--set` and `env:` are no files
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def _warning(file: str, paths: list[Path]) -> str:
    named = ", ".join(joined(path) for path in paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return (
        f"{quoted(file)} has secrets in plain text ({named}{more}), and every user of this machine can read it: "
        "run chmod o-r on it, or write ${env:NAME} or ${file:PATH} in place of the secrets"
    )
