"""The csv receiver's configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, GetPydanticSchema, PlainSerializer, field_validator, model_validator
from pydantic_core import core_schema

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Duration

Column = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1)]
STDIN = "-"


class Shard(ComponentConfig):
    """Which rows this process takes: those whose index in their file, modulo `count`, is `index`."""

    index: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _index_below_count(self) -> Self:
        if self.index >= self.count:
            raise ValueError(f"index ({self.index}) must be less than count ({self.count})")
        return self


class MetricColumn(ComponentConfig):
    """What the numbers of one column are."""

    name: str = ""
    """The metric's name; the column's own if empty."""
    unit: str = ""
    """In UCUM, after scaling."""
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Numbers are multiplied by this; 0.01 makes a ratio of a percentage."""
    type: Literal["gauge", "sum"] = "gauge"
    """A sum is cumulative and monotonic."""


class Columns(ComponentConfig):
    """A layout of one's own: wide (`metrics`) or long (`metric` and `value`)."""

    timestamp: Column | None = None
    """The column of the time; may lack with `timestamps: now`."""
    resource: Mapping[Name, Column] = Field(default_factory=dict)
    """Resource attributes and their columns."""
    attributes: Mapping[Name, Column] = Field(default_factory=dict)
    """Point attributes and their columns."""
    metrics: Mapping[Column, MetricColumn] = Field(default_factory=dict)
    """Wide: the columns that hold numbers."""
    metric: Column | None = None
    """Long: the column that holds the metric's name."""
    value: Column | None = None
    """Long: the column that holds the number."""

    @model_validator(mode="after")
    def _wide_or_long(self) -> Self:
        long = self.metric is not None and self.value is not None
        if long == bool(self.metrics) or (self.metric is None) != (self.value is None):
            raise ValueError("give either `metrics` (a column each), or both `metric` and `value` (a row each)")
        return self

    @model_validator(mode="after")
    def _texts_are_no_numbers(self) -> Self:
        texts = {self.timestamp, self.metric, *self.resource.values(), *self.attributes.values()}
        if both := [column for column in (self.value, *self.metrics) if column and column in texts]:
            raise ValueError(f"column {both[0]!r} cannot hold a number and something else too")
        return self


def _named_or_columns(value: Any, columns: Any) -> Any:
    """Decides by the input's shape, so that a mistake is reported once and at its own path."""
    if isinstance(value, str):
        if value not in ("dcgm", "wide"):
            raise ValueError(f"no layout {value!r}; write dcgm, wide, or a mapping of columns")
        return value
    return columns(value)


Layout = Annotated[
    Literal["dcgm", "wide"] | Columns,
    GetPydanticSchema(lambda _, of: core_schema.no_info_wrap_validator_function(_named_or_columns, of(Columns))),
    PlainSerializer(lambda layout: layout if isinstance(layout, str) else layout.model_dump(mode="json")),
]


class CsvConfig(ComponentConfig):
    """Which files to read, what their columns mean, and how fast they go."""

    files: Annotated[list[Name], Field(min_length=1)]
    """Paths and globs, plain, gzip or zstd; `-` is the standard input."""
    layout: Layout = "dcgm"
    """`dcgm`, `wide`, or a mapping of columns."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """The character between two columns."""
    timestamps: Literal["recorded", "now"] = "recorded"
    """The time in the row, or the time of reading (a ns apart)."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """The most rows in a batch; one of 8 MiB is full too."""
    interval: Duration = 0.0
    """The pause between two batches; 0 for as fast as downstream takes them."""
    loop: bool = False
    """Start again after the last file, for ever."""
    follow: bool = False
    """Wait for rows that are appended, across rotation and truncation, for ever."""
    shard: Shard = Shard()
    """Take every count-th row only."""
    rejects: Path | None = None
    """A file to which bad rows are appended as they were."""

    @field_validator("delimiter")
    @classmethod
    def _delimiter_is_no_syntax(cls, delimiter: str) -> str:
        if not delimiter.isascii() or delimiter in '"\r\n\0':
            raise ValueError("must be one ASCII character, and neither a quote nor a line end")
        return delimiter

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        if self.loop and self.follow:
            raise ValueError("loop and follow exclude each other")
        if STDIN in self.files and (self.loop or self.follow):
            raise ValueError('the standard input ("-") ends once: it goes with neither loop nor follow')
        if self.timestamps == "recorded" and isinstance(self.layout, Columns) and self.layout.timestamp is None:
            raise ValueError("layout needs a `timestamp` column; or set `timestamps: now`")
        return self
