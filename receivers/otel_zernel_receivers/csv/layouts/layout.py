"""What the columns of a file mean: the contract of a layout, and the layouts users write themselves."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otel_zernel.otlp.points import Descriptor, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel_receivers.csv.config import Columns, MetricColumn

SCOPE = Scope("otel_zernel_receivers.csv")


@dataclass(frozen=True, slots=True)
class Stream:
    """Where the numbers of rows with the same texts go."""

    series: Series
    scale: float = 1.0
    flawed: bool = False
    """Whether the texts were partly unreadable."""


class Layout(ABC):
    """A row is texts, which say what and where, a time, and numbers, each of which becomes a point."""

    timestamp: str | None
    needed: Sequence[str]
    """Text columns that every file must have."""
    optional: Sequence[str] = ()
    """Text columns that it may have."""
    numbers: Sequence[str]
    """Number columns."""
    every_number = True
    """Whether a file must have all of the number columns, or just one of them."""
    sparse: bool
    """Wide layouts: an empty number is no point. Else it makes a bad row."""

    @abstractmethod
    def stream(self, texts: Mapping[str, str], number: str) -> Stream:
        """The stream of the number column in rows with these texts (those that the file has)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout found in a header: where its columns are."""

    width: int
    """Columns of the file."""
    time: int | None
    texts: tuple[tuple[str, int], ...]
    numbers: tuple[tuple[str, int], ...]
    sparse: bool


def find_columns(layout: Layout, header: Sequence[str], *, timed: bool) -> Plan:
    """Where the layout's columns are in the header. Raises `LookupError` with a phrase that names what is missing."""
    at = {name.strip(): index for index, name in reversed(list(enumerate(header)))}
    needed = [*([layout.timestamp] if timed and layout.timestamp else []), *layout.needed]
    needed += layout.numbers if layout.every_number else []
    if missing := [name for name in needed if name not in at]:
        raise LookupError(f"has no column {' and no column '.join(map(repr, missing))}")
    numbers = tuple((name, at[name]) for name in layout.numbers if name in at)
    if not numbers:
        raise LookupError(f"has none of the columns {', '.join(layout.numbers)}")
    texts = tuple((name, at[name]) for name in (*layout.needed, *layout.optional) if name in at)
    return Plan(
        len(header), at[layout.timestamp] if timed and layout.timestamp else None, texts, numbers, layout.sparse
    )


class OwnLayout(Layout):
    """What wide and long mappings of one's own have in common."""

    def __init__(self, columns: Columns) -> None:
        self.timestamp = columns.timestamp
        self._resource = columns.resource
        self._attributes = columns.attributes
        self.needed = list(dict.fromkeys([*columns.resource.values(), *columns.attributes.values()]))

    def _series(self, texts: Mapping[str, str], descriptor: Descriptor) -> Series:
        resource = encode_resource(_filled(self._resource, texts))
        return Series(resource, SCOPE, descriptor, encode_point_attributes(_filled(self._attributes, texts)))


def _filled(columns: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    return {attribute: texts[column] for attribute, column in columns.items() if texts[column]}


class OwnWideLayout(OwnLayout):
    """A metric in each column."""

    sparse = True

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.numbers = list(columns.metrics)
        self._streams = {column: _descriptor(column, metric) for column, metric in columns.metrics.items()}
        self._scales = {column: metric.scale for column, metric in columns.metrics.items()}

    def stream(self, texts: Mapping[str, str], number: str) -> Stream:
        return Stream(self._series(texts, self._streams[number]), self._scales[number])


def _descriptor(column: str, metric: MetricColumn) -> Descriptor:
    return Descriptor(metric.name or column, metric.unit, metric.type)


class OwnLongLayout(OwnLayout):
    """A metric in each row, by name."""

    sparse = False

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._metric = columns.metric or ""
        self.needed = list(dict.fromkeys([*self.needed, self._metric]))
        self.numbers = [columns.value or ""]

    def stream(self, texts: Mapping[str, str], number: str) -> Stream:
        return Stream(self._series(texts, Descriptor(texts[self._metric])))
