"""Rows become encoded OTLP: what a series never changes is encoded once, numpy fills in times and values."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_zernel.otlp.points import (
    Descriptor,
    encode_metric,
    encode_resource_metrics,
    number_point_head,
    number_point_tails,
)
from otel_zernel_receivers.csv.layouts.layout import SCOPE, Layout, Plan
from otel_zernel_receivers.csv.rows import Rows, Texts

MAX_SERIES = 20_000
"""Series kept encoded: some 40 MB with the texts of dcgm-exporter. One more, and all are forgotten."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded `MetricsData`, its points, and how many of these come from texts that were partly unreadable."""

    metrics: bytes
    points: int
    flawed: int


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A metric of a resource: what series share that stand together. There is one for each, so identity is equality."""

    resource: bytes
    descriptor: Descriptor


@dataclass(frozen=True, slots=True)
class _Slot:
    """A series, encoded up to its points' times and values."""

    place: "_Place"
    head: bytes
    multiplier: float
    divisor: float
    flawed: bool


class Encoder:
    """Encodes rows of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._plan: Plan | None = None
        self._slots: dict[tuple[str, ...], list[_Slot]] = {}
        self._places: dict[tuple[bytes, Descriptor], _Place] = {}

    def encode(self, rows: Rows, times: NDArray[np.uint64], plan: Plan) -> Encoded:
        """A point for every number of the rows, with its row's `times`, shape (n,); sorted by time in each series."""
        if plan != self._plan:
            self._plan = plan
            self._forget()
        codes = _codes(rows.texts, len(rows))
        order = _order(codes, times)
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))  # of each run of rows with the same texts
        runs = np.diff(starts, append=len(order))
        keys = _keys(rows.texts, order[starts])
        slots = [self._slots.get(key) or self._new_slots(key, plan) for key in keys]
        times = times[order]
        metrics: defaultdict[_Place, list[bytes]] = defaultdict(list)
        points = flawed = 0
        for number, column in enumerate(rows.numbers):
            mine = [of_run[number] for of_run in slots]
            values = _scaled(column[order], mine, runs)
            filled = ~np.isnan(values)
            tails = number_point_tails(times[filled], values[filled])
            ends = np.cumsum(filled)[starts + runs - 1].tolist()
            start = 0
            for slot, end in zip(mine, ends, strict=True):
                if end > start:
                    metrics[slot.place].append(slot.head + slot.head.join(tails[start:end]))
                    flawed += (end - start) * slot.flawed
                start = end
            points += len(tails)
        return Encoded(_message(metrics), points, flawed)

    def _new_slots(self, key: tuple[str, ...], plan: Plan) -> list[_Slot]:
        """The slots of the rows with these texts: one for each number column."""
        if len(self._slots) * len(plan.numbers) >= MAX_SERIES:
            self._forget()
        texts = {name: text for (name, _), text in zip(plan.texts, key, strict=True)}
        slots = self._slots[key] = [self._slot(texts, name) for name, _ in plan.numbers]
        return slots

    def _slot(self, texts: dict[str, str], number: str) -> _Slot:
        stream = self._layout.stream(texts, number)
        series = stream.series
        place = self._places.setdefault(
            (series.resource, series.descriptor), _Place(series.resource, series.descriptor)
        )
        return _Slot(place, number_point_head(series.attributes), *_factors(stream.scale), stream.flawed)

    def _forget(self) -> None:
        self._slots.clear()
        self._places.clear()


def _message(metrics: Mapping[_Place, Sequence[bytes]]) -> bytes:
    resources: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for place, data_points in metrics.items():
        resources[place.resource].append(encode_metric(place.descriptor, b"".join(data_points)))
    return b"".join(encode_resource_metrics(resource, SCOPE, of_it) for resource, of_it in resources.items())


def _factors(scale: float) -> tuple[float, float]:
    """Multiplier and divisor of a scale. One that is 1/n divides: then 57 % is 0.57, not 0.5700000000000001."""
    divisor = round(1 / scale) if 1e-15 < scale < 1 else 1
    return (1.0, float(divisor)) if divisor > 1 and 1 / divisor == scale else (scale, 1.0)


def _codes(texts: Sequence[Texts], count: int) -> NDArray[np.int64]:
    """A number for each of `count` rows, shape (count,): the same for rows with the same texts, and for no others."""
    codes, size = np.zeros(count, np.int64), 1
    for text in texts:
        if size * len(text.values) > 2**62:
            _, codes = np.unique(codes, return_inverse=True)
            size = count
        if len(text.values) > 1:
            codes = codes * len(text.values) + text.codes
            size *= len(text.values)
    return codes


def _order(codes: NDArray[np.int64], times: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The rows by code, then by time, then by their order in the file."""
    if np.all(times[1:] >= times[:-1]):
        return np.argsort(codes, kind="stable")
    return np.lexsort((times, codes))


def _keys(texts: Sequence[Texts], rows: NDArray[np.intp]) -> list[tuple[str, ...]]:
    """The texts of the chosen rows."""
    columns = [[text.values[code] for code in text.codes[rows].tolist()] for text in texts]
    return list(zip(*columns, strict=True)) if columns else [()] * len(rows)


def _scaled(values: NDArray[np.float64], slots: Sequence[_Slot], runs: NDArray[np.intp]) -> NDArray[np.float64]:
    """The values in their metrics' units; `slots` are those of `runs` of so many values."""
    multipliers = np.array([slot.multiplier for slot in slots], np.float64)
    divisors = np.array([slot.divisor for slot in slots], np.float64)
    with np.errstate(over="ignore"):  # an overflow is inf, which OTLP holds
        scaled: NDArray[np.float64] = values * np.repeat(multipliers, runs) / np.repeat(divisors, runs)
    return scaled
