"""Runs the queries of one device at each scrape. Unsupported queries run only once, slow queries less often."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TypeVar

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml, NvmlLibrary
from otel_zernel_receivers.nvml.points.histograms import DurationHistogram
from otel_zernel_receivers.nvml.points.series import NvmlSeries
from otel_zernel_receivers.nvml.readings.fields import NvmlField
from otel_zernel_receivers.nvml.readings.queries import MAX_FIELDS, NvmlQuery, ReadValues

T = TypeVar("T")

MAX_PERIOD = 100
"""A query runs at least once in so many scrapes, however slow it is."""

FIELD = struct.Struct("<IIqqII8s")
"""nvmlFieldValue_t: field, scope, time, latency, type, code, value."""
VALUES = {type_: struct.Struct("<" + code) for type_, code in enumerate("dIQQqiH")}
"""nvmlValue_t by NVML_VALUE_TYPE_…"""
_WRAPS = {1: 2.0**32, 6: 2.0**16}
"""The number at which a counter of this NVML_VALUE_TYPE_… wraps around. A 64-bit counter never does."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value from the driver, in the metric's unit."""

    value: float
    wraps_at: float = 0.0
    """The value at which a counter wraps around to 0; 0 if it never does."""


Measurements = dict[NvmlSeries, Measurement]

ReadMeasurements = Callable[[Nvml, Handle], Measurements]
"""Calls NVML for a device. May raise `NVMLError`."""


@dataclass(slots=True)
class PolledQuery:
    """A query to one device, with its cost and its next run."""

    name: str
    variants: list[ReadMeasurements]
    """The ways to call NVML, newest first. Unsupported ones are removed."""
    cost: float = 0.0
    """Duration in s, as an exponential moving average."""
    due: int = 0
    """The number of the scrape at which the query runs next."""

    def schedule(self, seconds: float, scrape: int, slow_query: float) -> None:
        """Sets the next run, after a run in `scrape` that took `seconds`.

        A query that takes n times `slow_query` seconds runs at every nth scrape.
        """
        self.cost = seconds if not self.due else self.cost + (seconds - self.cost) / 4
        self.due = scrape + min(max(ceil(self.cost / slow_query), 1), MAX_PERIOD)


@dataclass
class QueryPoller:
    """Runs all queries of one device. Must not be shared by threads."""

    library: NvmlLibrary
    device: Handle
    slow_query: float
    """Seconds that a query may take at every scrape."""
    monotonic: Callable[[], float]
    queries: list[PolledQuery] = field(default_factory=list)
    durations: dict[str, DurationHistogram] = field(default_factory=dict)
    """By query."""
    scrape: int = 0
    """The number of the current scrape, from 1."""
    all_failed: bool = False
    """Whether the latest scrape with an answer or a failure had failures only."""

    def poll(self) -> Measurements:
        """Runs the queries that are due. Raises `NvmlUnavailable` or `GpuLost`."""
        self.scrape += 1
        measurements: Measurements = {}
        any_failed = False
        for query in [query for query in self.queries if query.due <= self.scrape]:
            answer = self._run(query)
            any_failed |= answer is None
            measurements |= answer or {}
        if measurements or any_failed:
            self.all_failed = not measurements
        self.queries = [query for query in self.queries if query.variants]
        return measurements

    def measure_duration(self, name: str, call: Callable[[], T]) -> T:
        """Returns the result of `call`, and adds its duration to the durations of the query `name`."""
        start = self.monotonic()
        try:
            return call()
        finally:
            self.durations.setdefault(name, DurationHistogram()).add(self.monotonic() - start)

    def _run(self, query: PolledQuery) -> Measurements | None:
        """The answer: None after a failure that may pass, empty if nothing is supported."""
        start = self.monotonic()
        while query.variants:
            try:
                return self.measure_duration(query.name, lambda: query.variants[0](self.library.nvml, self.device))
            except AttributeError:  # this version of pynvml does not have the function
                query.variants.pop(0)
            except self.library.nvml.NVMLError as error:
                if not self.library.record_error(query.name, error.value):
                    return None
                query.variants.pop(0)
            except (ArithmeticError, LookupError, ValueError) as error:  # an invalid answer
                self.library.on_error(query.name, type(error).__name__)
                return None
            finally:
                query.schedule(self.monotonic() - start, self.scrape, self.slow_query)
        return {}


def polled_queries(
    queries: Sequence[NvmlQuery], fields: Sequence[NvmlField], enabled: frozenset[str], library: NvmlLibrary
) -> Iterator[PolledQuery]:
    """The queries that are needed for the `enabled` metrics. Fields are queried in batches."""
    for query in queries:
        if any(series.metric in enabled for series in query.series):
            yield PolledQuery(query.name, [_measuring(query, read, enabled) for read in query.variants])
    wanted = [query for query in fields if query.series.metric in enabled and query.applies_to(library.driver)]
    known = [query for query in wanted if query.number or hasattr(library.nvml, f"NVML_FI_{query.id}")]
    for start in range(0, len(known), MAX_FIELDS):
        yield PolledQuery("nvmlDeviceGetFieldValues", [FieldBatch(known[start : start + MAX_FIELDS], library)])


def _measuring(query: NvmlQuery, read: ReadValues, enabled: frozenset[str]) -> ReadMeasurements:
    """Reads the query's values as measurements of the enabled series."""

    def measure(nvml: Nvml, device: Handle) -> Measurements:
        values = zip(query.series, read(nvml, device), strict=True)
        return {
            series: Measurement(series.scaled(value))
            for series, value in values
            if series.metric in enabled and value == value  # not NaN
        }

    return measure


class FieldBatch:
    """Up to `MAX_FIELDS` fields, queried in one call.

    Unsupported fields are left out of later calls. Other failures are recorded for each field, by its own name.
    """

    def __init__(self, fields: Sequence[NvmlField], library: NvmlLibrary) -> None:
        self._library = library
        self._fields = {
            query: (query.number or getattr(library.nvml, f"NVML_FI_{query.id}"), query.scope) for query in fields
        }

    def __call__(self, nvml: Nvml, device: Handle) -> Measurements:
        fields = list(self._fields)
        answers = bytes(nvml.nvmlDeviceGetFieldValues(device, list(self._fields.values())))
        measurements: Measurements = {}
        for query, (_, _, _, _, type_, code, value) in zip(fields, FIELD.iter_unpack(answers), strict=True):
            name = f"NVML_FI_{query.id}"
            if code != nvml.NVML_SUCCESS:
                if self._library.record_error(name, code):
                    del self._fields[query]
            elif type_ in VALUES:
                measurements[query.series] = _measurement(query.series, type_, value)
            else:
                self._library.on_error(name, "unknown_value_type")
        if not self._fields:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return measurements


def _measurement(series: NvmlSeries, type_: int, value: bytes) -> Measurement:
    (number,) = VALUES[type_].unpack_from(value)
    return Measurement(series.scaled(number), series.scaled(_WRAPS.get(type_, 0.0)))
