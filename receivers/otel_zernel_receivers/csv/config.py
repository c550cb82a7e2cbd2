"""The configuration of the csv receiver."""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, GetPydanticSchema, PlainSerializer, field_validator, model_validator
from pydantic_core import core_schema

from otel_zernel.component import ComponentConfig
from otel_zernel.storage import Storage
from otel_zernel.types import Duration, ExtensionId, Permissions, ReadableFile
from otel_zernel_libraries.files.sources import STDIN
from otel_zernel_libraries.files.writing import OWNER_AND_GROUP

ColumnName = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1)]
_LAYOUTS = ("auto", "dcgm", "wide", "nvidia_smi")


class Shard(ComponentConfig):
    """The rows that this process reads: those whose index in their file, modulo `count`, equals `index`."""

    index: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _index_below_count(self) -> Self:
        if self.index >= self.count:
            raise ValueError(f"index ({self.index}) must be less than count ({self.count})")
        return self


class MetricColumn(ComponentConfig):
    """The metric of one column of numbers."""

    name: str = ""
    """The metric's name; if empty, the column's."""
    unit: str = ""
    """In UCUM, after scaling."""
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Numbers are multiplied by this: 0.01 turns a percentage into a ratio."""
    type: Literal["gauge", "sum"] = "gauge"
    """A sum is cumulative and monotonic."""


class Columns(ComponentConfig):
    """A custom layout, wide (with `metrics`) or long (with `metric` and `value`)."""

    timestamp: ColumnName | None = None
    """The column of the time. Optional with `timestamps: now`."""
    resource: Mapping[Name, ColumnName] = Field(default_factory=dict)
    """Resource attributes and their columns."""
    attributes: Mapping[Name, ColumnName] = Field(default_factory=dict)
    """Point attributes and their columns."""
    metrics: Mapping[ColumnName, MetricColumn] = Field(default_factory=dict)
    """Wide: the columns of numbers, one per metric."""
    metric: ColumnName | None = None
    """Long: the column of the metric's name."""
    value: ColumnName | None = None
    """Long: the column of the number."""

    @model_validator(mode="after")
    def _wide_or_long(self) -> Self:
        long = self.metric is not None and self.value is not None
        if long == bool(self.metrics) or (self.metric is None) != (self.value is None):
            raise ValueError(
                "give either `metrics` (one column per metric), or both `metric` and `value` (one row each)"
            )
        return self

    @model_validator(mode="after")
    def _no_column_is_text_and_number(self) -> Self:
        texts = {self.timestamp, self.metric, *self.resource.values(), *self.attributes.values()}
        if both := [column for column in (self.value, *self.metrics) if column and column in texts]:
            raise ValueError(f"column {both[0]!r} cannot be used both as a number and as a text or time")
        return self


def _named_or_columns(value: Any, columns: Any) -> Any:
    """Validates either a name or a mapping, so that an error is reported once and at its own path."""
    if isinstance(value, str):
        if value not in _LAYOUTS:
            raise ValueError(f"there is no layout {value!r}; use {', '.join(_LAYOUTS)}, or a mapping of columns")
        return value
    return columns(value)


LayoutOption = Annotated[
    Literal["auto", "dcgm", "wide", "nvidia_smi"] | Columns,
    GetPydanticSchema(lambda _, of: core_schema.no_info_wrap_validator_function(_named_or_columns, of(Columns))),
    PlainSerializer(lambda layout: layout if isinstance(layout, str) else layout.model_dump(mode="json")),
]


class CsvReceiverConfig(ComponentConfig):
    """The files to read, the meaning of their columns, and the pace."""

    files: Annotated[list[Name], Field(min_length=1), ReadableFile()]
    """Paths and globs of files, uncompressed, gzip or zstd. `-` is the standard input."""
    layout: LayoutOption = "auto"
    """`dcgm`, `wide`, `nvidia_smi`, or a mapping of columns. `auto` finds one of the first three by the header."""
    header: Annotated[str, Field(min_length=1)] | None = None
    """The header of files that have none: the names of the columns, such as the value of `--query-gpu`."""
    timezone: str = "UTC"
    """The zone of times without one: `UTC`, `local` (this machine's), or a name such as `Europe/Berlin`."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """The character between two columns."""
    timestamps: Literal["recorded", "now"] = "recorded"
    """The time in the row, or the time of reading (1 ns apart)."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """The maximum number of rows in a batch. A batch of 8 MiB is full as well."""
    interval: Duration = 0.0
    """The pause between two batches; 0 for none."""
    loop: bool = False
    """Start again after the last file, without end."""
    follow: bool = False
    """Wait for rows that are appended, also after rotation and truncation, without end."""
    start_at: Literal["beginning", "end"] = "beginning"
    """With `follow`: whether files that exist at the start are read from their beginning or from their end.

    A known position in a file comes first.
    """
    shard: Shard = Shard.model_construct()
    """Read only every count-th row."""
    rejects: Path | None = None
    """A file to which bad rows are appended unchanged."""
    rejects_permissions: Permissions = OWNER_AND_GROUP
    """The permissions of `rejects` if it is created, in octal. The umask applies too."""
    storage: Annotated[str | None, ExtensionId(Storage)] = None
    """The id of a storage extension that keeps the positions in files over restarts."""

    @property
    def zone(self) -> tzinfo | None:
        """`timezone` as an object; None for that of this machine."""
        if self.timezone == "UTC":
            return UTC
        return None if self.timezone == "local" else ZoneInfo(self.timezone)

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, timezone: str) -> str:
        if timezone not in ("UTC", "local"):
            try:
                ZoneInfo(timezone)
            except (OSError, ValueError, ZoneInfoNotFoundError):
                raise ValueError(
                    f"this machine has no time zone {timezone!r}; use UTC, local, or a name such as Europe/Berlin"
                ) from None
        return timezone

    @field_validator("delimiter")
    @classmethod
    def _valid_delimiter(cls, delimiter: str) -> str:
        if not delimiter.isascii() or delimiter in '"\r\n\0':
            raise ValueError("must be one ASCII character, and neither a quote nor a line end nor NUL")
        return delimiter

    @model_validator(mode="after")
    def _compatible_options(self) -> Self:
        if self.loop and self.follow:
            raise ValueError("loop and follow exclude each other; remove one")
        if STDIN in self.files and (self.loop or self.follow):
            raise ValueError('the standard input ("-") ends once; remove loop and follow')
        if self.start_at == "end" and not self.follow:
            raise ValueError("start_at: end reads only rows that are appended later; set follow: true")
        if self.storage is not None and self.loop:
            raise ValueError("loop reads every row again, and storage prevents that; remove one")
        if self.storage is not None and STDIN in self.files:
            raise ValueError('storage keeps positions in files, and the standard input ("-") has none; remove storage')
        if self.timestamps == "recorded" and isinstance(self.layout, Columns) and self.layout.timestamp is None:
            raise ValueError("layout needs a `timestamp` column; or set `timestamps: now`")
        return self
