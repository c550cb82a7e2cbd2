"""A layout is the meaning of a file's columns. Contains the contract of a layout, and the custom layouts of users."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from otel_zernel.otlp.points import AttributeValue, Descriptor, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel_libraries.gpu_names.dcgm import FIELDS
from otel_zernel_libraries.gpu_names.dcgm_blanks import blank_from
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.csv.config import Columns, MetricColumn

TELL_APART = "add a column that tells GPUs apart, such as their uuid or index"
SCOPE = Scope("otel_zernel_receivers.csv")


@dataclass(frozen=True, slots=True)
class CsvSeries:
    """The series of a number column in all rows with the same texts."""

    series: Series
    scale: float = 1.0
    """Numbers are multiplied by this."""
    malformed_labels: bool = False
    """Whether the labels could not be parsed, so that the series has none of them."""
    maybe_percent: bool = False
    """Whether the numbers are ratios or per cent. The first number above 1 proves that they are per cent."""
    blank_from: float = math.inf
    """From this number on, a cell has no value; finite for DCGM's fields."""


class CsvLayout(ABC):
    """A row has a time, texts that identify a series, and numbers. Each number becomes a point."""

    name = ""
    """As in the configuration; empty for a custom layout."""
    timestamp: str | None
    """The column of the time."""
    required: Sequence[str]
    """Text columns that every file must have."""
    either: Sequence[tuple[str, ...]] = ()
    """Groups of text columns. Every file must have at least one column of each group."""
    optional: Sequence[str] = ()
    """Text columns that a file may have."""
    numbers: Sequence[str]
    """Number columns."""
    requires_all_numbers = True
    """Whether a file must have all number columns. If not, one is enough."""
    sparse: bool
    """Whether an empty cell of a number column is skipped. If not, its row is bad."""

    quantities = False
    """Whether cells of number columns have units or words, which `read_number` reads."""

    @property
    def names(self) -> frozenset[str]:
        """The names of all columns that have a meaning."""
        texts = chain(self.required, chain.from_iterable(self.either), self.optional)
        return frozenset([*texts, *self.numbers, *([self.timestamp] if self.timestamp else [])])

    def columns(self, header: Sequence[str]) -> list[str]:
        """The columns that the cells of a header name."""
        return [name.strip() for name in header]

    def find_numbers(self, positions: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """The number columns that a file with these columns has, and their positions."""
        return tuple((name, positions[name]) for name in self.numbers if name in positions)

    def read_number(self, number: str, text: str, header: str) -> float:
        """The number in a cell, with `quantities`; NaN if it has no value. Raises `ValueError`.

        `header` is the cell of the header, which may name the unit.
        """
        raise NotImplementedError

    def warnings(self, header: Sequence[str], columns: Collection[str]) -> list[str]:
        """Sentences about a header whose rows cannot be read fully. `columns` are those that the layout knows."""
        return []

    def identifies(self, columns: Collection[str]) -> bool:
        """Whether these columns tell the rows of one time apart."""
        return True

    def is_message(self, line: str) -> bool:
        """Whether the line is no row but a message of the program that writes the file."""
        return False

    @abstractmethod
    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        """The series of the number column `number` in rows with these texts, by column. Optional ones may be absent."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The positions of a layout's columns in a file."""

    width: int
    """The number of columns in the file."""
    time: int | None
    texts: tuple[tuple[str, int], ...]
    """Names and positions of the text columns."""
    numbers: tuple[tuple[str, int], ...]
    """Names and positions of the number columns."""
    sparse: bool
    """As in `CsvLayout`."""
    layout: CsvLayout
    """The meaning of the columns."""
    date: int | None = None
    """The column of the date if `time` is only the time of day."""
    header: tuple[str, ...] = ()
    """The cells of the header."""
    warnings: tuple[str, ...] = ()
    """As in `CsvLayout`."""
    identifies: bool = True
    """As in `CsvLayout`."""

    def read_number(self, name: str, index: int, text: str) -> float:
        """The number in a cell of a number column, if the layout has `quantities`."""
        return self.layout.read_number(name, text, self.header[index] if self.header else "")


def find_columns(layout: CsvLayout, header: Sequence[str], *, timed: bool, partly: bool = False) -> ColumnPlan:
    """The positions of the layout's columns in the header.

    `timed`: whether the time column is needed. `partly`: whether number columns may be missing that the layout
    requires. Raises `LookupError` with a predicate that names the missing columns.
    """
    positions = {name: index for index, name in reversed(list(enumerate(layout.columns(header))))}
    for name, index in list(positions.items()):  # `#Date` is the column Date, too
        positions.setdefault(name.lstrip("# "), index)
    date, time = _time_columns(layout, layout.timestamp, positions) if timed and layout.timestamp else (None, None)
    missing = [repr(layout.timestamp)] if timed and layout.timestamp and time is None else []
    required = [*layout.required, *(layout.numbers if layout.requires_all_numbers and not partly else ())]
    missing += [repr(name) for name in required if name not in positions]
    missing += [" or ".join(map(repr, names)) for names in layout.either if positions.keys().isdisjoint(names)]
    if missing:
        raise LookupError(f"has no column {' and no column '.join(missing)}")
    numbers = layout.find_numbers(positions)
    if not numbers:
        raise LookupError(f"has none of the columns {some([_column_of(name) for name in layout.numbers])}")
    wanted = (*layout.required, *chain.from_iterable(layout.either), *layout.optional)
    texts = tuple((name, positions[name]) for name in wanted if name in positions)
    warnings = tuple(layout.warnings(header, positions))
    identifies = layout.identifies(positions)
    return ColumnPlan(
        len(header), time, texts, numbers, layout.sparse, layout, date, tuple(header), warnings, identifies
    )


def _time_columns(layout: CsvLayout, timestamp: str, positions: Mapping[str, int]) -> tuple[int | None, int | None]:
    """The positions of the date, if it has a column of its own, and of the time.

    Files with the columns Date and Time have no other time: `Date` alone, or a missing column, means both. A column
    that the layout uses otherwise is none of them.
    """
    if timestamp in positions and timestamp.lower() != "date":
        return None, positions[timestamp]
    others = layout.names - {timestamp}
    lower = {name.lower(): index for name, index in positions.items() if name not in others}
    if "date" in lower and "time" in lower:
        return lower["date"], lower["time"]
    return None, positions.get(timestamp)


def _column_of(number: str) -> str:
    """The column of a number. Several numbers may be read from one column; they differ after a `#`."""
    return number.partition("#")[0] or number


def some(names: Sequence[str]) -> str:
    """The names, of many only the first."""
    first = ", ".join(name[:_LONGEST_NAME] for name in names[:_SOME])
    return f"{first}, ..." if len(names) > _SOME else first


_SOME = 12
"""The most columns that a message lists."""
_LONGEST_NAME = 60


class CustomLayout(CsvLayout):
    """The common part of custom layouts, wide and long."""

    def __init__(self, columns: Columns) -> None:
        self.timestamp = columns.timestamp
        self._resource = columns.resource
        self._attributes = columns.attributes
        self.required = list(dict.fromkeys([*columns.resource.values(), *columns.attributes.values()]))

    def _encoded_series(self, texts: Mapping[str, str], descriptor: Descriptor) -> Series:
        resource = encode_resource(_attributes(self._resource, texts))
        return Series(resource, SCOPE, descriptor, encode_point_attributes(_attributes(self._attributes, texts)))


def _attributes(columns: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by attribute. An empty text makes no attribute."""
    return {attribute: texts[column] for attribute, column in columns.items() if texts[column]}


class CustomWideLayout(CustomLayout):
    """One metric per column."""

    sparse = True

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.numbers = list(columns.metrics)
        self._descriptors = {column: _descriptor(column, metric) for column, metric in columns.metrics.items()}
        self._scales = {column: metric.scale for column, metric in columns.metrics.items()}

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        series = self._encoded_series(texts, self._descriptors[number])
        return CsvSeries(series, self._scales[number], blank_from=blank_from(number))


def _descriptor(column: str, metric: MetricColumn) -> Descriptor:
    return Descriptor(metric.name or column, metric.unit, metric.type)


class CustomLongLayout(CustomLayout):
    """One metric per row, with its name in a column."""

    sparse = False

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._metric = columns.metric or ""
        self.required = list(dict.fromkeys([*self.required, self._metric]))
        self.numbers = [columns.value or ""]

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        name = texts[self._metric]
        return CsvSeries(self._encoded_series(texts, Descriptor(name)), blank_from=blank_from(name))


def gpu_resource(*, uuid: str, index: str, model: str, hostname: str, device: str = "") -> dict[str, AttributeValue]:
    """The attributes that identify one GPU, after the semantic conventions for hardware, without empty ones.

    If the uuid is unknown, `hw.id` is the index, which is unique only on its host.
    """
    attributes: dict[str, AttributeValue] = {
        "host.name": hostname,
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": uuid or index,
        "hw.model": model,
        semconv.GPU_INDEX: int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else index,
        semconv.GPU_DEVICE: device,
    }
    return {name: value for name, value in attributes.items() if value != ""}


# The columns have the meaning and the units of DCGM's fields.
_FIELDS = {
    "gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "memory_utilization": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "memory_used_mb": "DCGM_FI_DEV_FB_USED",
    "memory_free_mb": "DCGM_FI_DEV_FB_FREE",
    "temperature": "DCGM_FI_DEV_GPU_TEMP",
    "power_draw": "DCGM_FI_DEV_POWER_USAGE",
    "sm_clock_mhz": "DCGM_FI_DEV_SM_CLOCK",
    "memory_clock_mhz": "DCGM_FI_DEV_MEM_CLOCK",
}


class WideLayout(CsvLayout):
    """`layout: wide`."""

    name = "wide"
    timestamp = "timestamp"
    required = ("gpu_id", "hostname")
    optional = ("uuid",)
    numbers = tuple(_FIELDS)
    requires_all_numbers = False
    sparse = True

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        uuid, index = texts.get("uuid", ""), texts["gpu_id"]
        resource = gpu_resource(uuid=uuid, index=index, model="", hostname=texts["hostname"])
        measure = FIELDS[_FIELDS[number]]
        attributes = encode_point_attributes({"hw.id": uuid or index, **measure.attributes})
        series = Series(encode_resource(resource), SCOPE, measure.descriptor, attributes)
        return CsvSeries(series, measure.scale, blank_from=blank_from(_FIELDS[number]))
