"""The configuration of the file exporter."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Permissions, PositiveDuration
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP


def _nanoseconds(value: object) -> object:
    return f"{value}ns" if isinstance(value, int) and not isinstance(value, bool) else value


class RotationConfig(ComponentConfig):
    """When the file is renamed and a new one begins.

    `data.json` is renamed to `data-2026-01-15T08-00-00.000.json`.
    """

    max_megabytes: Annotated[int, Field(ge=1)] = 100
    """The maximum size of a file, in MiB. Only a single larger batch exceeds it."""
    max_days: Annotated[int, Field(ge=0)] = 0
    """Days after which old files are removed; 0 for never."""
    max_backups: Annotated[int, Field(ge=0)] = 100
    """The number of old files to keep; 0 for all."""
    localtime: bool = False
    """Use local time in the names of old files, not UTC."""


class FileConfig(ComponentConfig):
    """Where and how to write. Names and defaults are those of the OpenTelemetry Collector, which has no
    `file_permissions`."""

    path: Path
    """The file to write."""
    format: Literal["json", "proto"] = "json"
    """`json`: lines of OTLP JSON. `proto`: encoded messages, each prefixed with its length."""
    compression: Literal["none", "zstd"] = "none"
    """`zstd` compresses each message separately, prefixed with its length."""
    append: bool = False
    """Append to an existing file. Else it is emptied at start. With rotation, the exporter always appends."""
    rotation: RotationConfig | None = None
    """Begin a new file at a maximum size; null for a single file."""
    flush_interval: Annotated[PositiveDuration, BeforeValidator(_nanoseconds)] = 1.0
    """Seconds between syncs to the disk, which protect from a power failure. Readers see the data immediately. As in
    the OpenTelemetry Collector, a number without a unit is in nanoseconds."""
    create_directory: bool = False
    """Create the directory of the file if it is missing."""
    directory_permissions: Permissions = "0755"
    """The permissions of a directory that is created, in octal. The umask applies too."""
    file_permissions: Permissions = OWNER_AND_GROUP
    """The permissions of a file that is created, in octal. The umask applies too."""
