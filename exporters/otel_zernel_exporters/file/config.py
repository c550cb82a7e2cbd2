"""The configuration of the file exporter."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration


def _permissions(text: str) -> str:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text, 8) <= 0o777:
        raise ValueError(f'not permissions: {text!r}; write them in octal and quoted, like "0755"')
    return text


class RotationConfig(ComponentConfig):
    """When the file is put aside and a new one begun.

    `data.json` is put aside as `data-2026-01-15T08-00-00.000.json`.
    """

    max_megabytes: Annotated[int, Field(ge=1)] = 100
    """The size (MiB) a file does not exceed, unless a single batch does."""
    max_days: Annotated[int, Field(ge=0)] = 0
    """Old files are removed after this many days; 0 for never."""
    max_backups: Annotated[int, Field(ge=0)] = 100
    """How many old files are kept; 0 for all."""
    localtime: bool = False
    """Local time in the names of old files in place of UTC."""


class FileConfig(ComponentConfig):
    """Where and how to write; names and defaults as in the OpenTelemetry Collector."""

    path: Path
    """The file to write."""
    format: Literal["json", "proto"] = "json"
    """`json`: a line a batch. `proto`: encoded messages, each behind its length."""
    compression: Literal["none", "zstd"] = "none"
    """`zstd` compresses every message by itself and puts its length before it."""
    append: bool = False
    """Continue an existing file; else it is emptied at start. A rotated file is always continued."""
    rotation: RotationConfig | None = None
    """Begin a new file at a size; null for one file without end."""
    flush_interval: PositiveDuration = 1.0
    """Seconds after which what was written is on the disk, safe from a power cut. Readers see it at once."""
    create_directory: bool = False
    """Make the file's directory if it is missing."""
    directory_permissions: Annotated[str, AfterValidator(_permissions)] = "0755"
    """The permissions of a directory that is made, in octal."""
