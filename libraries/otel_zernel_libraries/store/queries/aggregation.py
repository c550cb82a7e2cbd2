"""Aggregates of series by their labels and by time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_zernel_libraries.store.queries.cells import DELTA, Cell, Kind, Place, kind_of
from otel_zernel_libraries.store.queries.distributions import aggregated_distributions, cell_of
from otel_zernel_libraries.store.queries.numbers import Windows, aggregated_values, increases, quantiles_of_values
from otel_zernel_libraries.store.queries.series import SeriesEntry
from otel_zernel_libraries.store.reading import StoreReader


@dataclass(slots=True, frozen=True)
class SeriesGroup:
    """Series that are aggregated together: one metric, one unit, one way, and the same labels."""

    metric: str
    unit: str
    kind: Kind
    labels: tuple[str | None, ...]


@dataclass(slots=True, frozen=True)
class Aggregate:
    """The aggregates of a group in a window."""

    group: SeriesGroup
    window: int
    cell: Cell


def grouped(series: Iterable[SeriesEntry], labels: Sequence[str]) -> dict[SeriesGroup, list[SeriesEntry]]:
    """The series by their group."""
    groups: dict[SeriesGroup, list[SeriesEntry]] = defaultdict(list)
    for entry in series:
        values = tuple(entry.label(name) for name in labels)
        groups[SeriesGroup(entry.metric, entry.unit, kind_of(entry), values)].append(entry)
    return groups


async def aggregated(
    reader: StoreReader,
    groups: dict[SeriesGroup, list[SeriesEntry]],
    windows: Windows,
    quantiles: Sequence[float],
    most_histograms: int,
) -> list[Aggregate]:
    """The aggregates by group and window, without the empty ones.

    An average is the sum over all points divided by their number, and a quantile that of all values together.
    Raises `TooManyPoints`, and `Retryable` if the database does not answer.
    """
    ordered = sorted(
        groups, key=lambda group: (group.metric, group.unit, group.kind, [value or "" for value in group.labels])
    )
    parts: dict[Kind, list[tuple[SeriesEntry, int]]] = defaultdict(list)
    for number, group in enumerate(ordered):
        parts[group.kind] += [(entry, number) for entry in groups[group]]
    cells: dict[Place, Cell] = {}
    for kind, members in parts.items():
        cells |= await _cells(reader, kind, members, windows, quantiles, most_histograms)
    return [Aggregate(ordered[part], win, cell) for (part, win), cell in sorted(cells.items())]


async def _cells(
    reader: StoreReader,
    kind: Kind,
    members: Sequence[tuple[SeriesEntry, int]],
    windows: Windows,
    quantiles: Sequence[float],
    most: int,
) -> dict[Place, Cell]:
    pairs = [(entry.id, part) for entry, part in members]
    if kind == "counter":
        return await increases(reader, pairs, windows)
    if kind in ("value", "delta"):
        cells = await aggregated_values(reader, pairs, windows)
        if quantiles and kind == "value":
            for place, values in (await quantiles_of_values(reader, pairs, windows, quantiles)).items():
                if place in cells:  # a batch may have arrived in between
                    cells[place].quantiles = values
        return cells
    deltas = frozenset(entry.id for entry, _ in members if entry.temporality == DELTA)
    points = await aggregated_distributions(reader, kind, pairs, deltas, windows, most)
    return {place: cell_of(point, quantiles) for place, point in points.items()}
