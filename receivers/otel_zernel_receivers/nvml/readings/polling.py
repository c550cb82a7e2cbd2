"""Asking one device: what it does not support is asked once, and what is slow seldom."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TypeVar

from otel_zernel_receivers.nvml.driver.library import Handle, Library, Nvml
from otel_zernel_receivers.nvml.points.histograms import DurationHistogram
from otel_zernel_receivers.nvml.points.series import Stream
from otel_zernel_receivers.nvml.readings.fields import Field
from otel_zernel_receivers.nvml.readings.queries import Ask, Query

T = TypeVar("T")

BATCH = 32
"""Fields in one call of `nvmlDeviceGetFieldValues`."""
RAREST = 100
"""No query waits for more scrapes than this."""

_FIELD = struct.Struct("<IIqqII8s")
"""nvmlFieldValue_t: field, scope, time, latency, type, code, value."""
_VALUES = {kind: struct.Struct("<" + code) for kind, code in enumerate("dIQQqiH")}
"""nvmlValue_t by NVML_VALUE_TYPE_…"""
_WRAPS = {1: 2.0**32, 6: 2.0**16}


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver said, scaled to the metric's unit."""

    value: float
    wraps_at: float = 0.0
    """Where a counter so wide begins anew; 0 for nowhere one gets to."""


Readings = dict[Stream, Reading]


@dataclass(slots=True)
class Asked:
    """One question to one device, and what it has cost."""

    name: str
    asks: list[Callable[[Nvml, Handle], Readings]]
    """The ways to ask it; those that turn out to be unsupported go."""
    cost: float = 0.0
    """Seconds, smoothed."""
    due: int = 0
    """The scrape at which it is asked next."""

    def took(self, seconds: float, scrape: int, slow: float) -> None:
        """A query that takes n times `slow` is asked at every nth scrape."""
        self.cost = seconds if not self.due else self.cost + (seconds - self.cost) / 4
        self.due = scrape + min(max(ceil(self.cost / slow), 1), RAREST)


@dataclass
class Questions:
    """All questions to one device. Not to be shared by threads."""

    library: Library
    device: Handle
    slow: float
    """Seconds a query may take at every scrape."""
    monotonic: Callable[[], float]
    asked: list[Asked] = field(default_factory=list)
    durations: dict[str, DurationHistogram] = field(default_factory=dict)
    """By query."""
    scrape: int = 0
    silent: bool = False
    """Whether the last queries that were answered or failed all failed."""

    def ask(self) -> Readings:
        """What the device says. Raises `Unavailable` or `Lost`."""
        self.scrape += 1
        readings: Readings = {}
        failed = False
        for question in [one for one in self.asked if one.due <= self.scrape]:
            answer = self._answer(question)
            failed |= answer is None
            readings |= answer or {}
        if readings or failed:
            self.silent = not readings
        self.asked = [question for question in self.asked if question.asks]
        return readings

    def timed(self, name: str, call: Callable[[], T]) -> T:
        """What the call returns; its cost goes to the durations."""
        began = self.monotonic()
        try:
            return call()
        finally:
            self.durations.setdefault(name, DurationHistogram()).add(self.monotonic() - began)

    def _answer(self, question: Asked) -> Readings | None:
        """None for an answer that may come another time."""
        began = self.monotonic()
        while question.asks:
            try:
                return self.timed(question.name, lambda: question.asks[0](self.library.nvml, self.device))
            except AttributeError:  # a pynvml that is older than the function
                question.asks.pop(0)
            except self.library.nvml.NVMLError as error:
                if not self.library.unsupported(question.name, error.value):
                    return None
                question.asks.pop(0)
            except (ArithmeticError, LookupError, ValueError) as error:  # an answer that makes no sense
                self.library.failed(question.name, type(error).__name__)
                return None
            finally:
                question.took(self.monotonic() - began, self.scrape, self.slow)
        return {}


def questions(
    queries: Sequence[Query], fields: Sequence[Field], enabled: frozenset[str], library: Library
) -> Iterator[Asked]:
    """The questions whose answers somebody wants."""
    for query in queries:
        if any(stream.metric in enabled for stream in query.streams):
            yield Asked(query.name, [_scaled(query, ask, enabled) for ask in query.asks])
    wanted = [one for one in fields if one.stream.metric in enabled and library.driver_major >= one.driver]
    known = [one for one in wanted if hasattr(library.nvml, f"NVML_FI_{one.id}")]
    for start in range(0, len(known), BATCH):
        yield Asked("nvmlDeviceGetFieldValues", [FieldBatch(known[start : start + BATCH], library)])


def _scaled(query: Query, ask: Ask, enabled: frozenset[str]) -> Callable[[Nvml, Handle], Readings]:
    def readings(nvml: Nvml, device: Handle) -> Readings:
        values = zip(query.streams, ask(nvml, device), strict=True)
        return {
            stream: Reading(stream.scaled(value))
            for stream, value in values
            if stream.metric in enabled and value == value
        }

    return readings


class FieldBatch:
    """Up to 32 fields asked in one call. Those that the device does not have are not asked again; those that fail
    for once are counted one by one, as queries of their own name."""

    def __init__(self, fields: Sequence[Field], library: Library) -> None:
        self._library = library
        self._fields = {one: (getattr(library.nvml, f"NVML_FI_{one.id}"), one.scope) for one in fields}

    def __call__(self, nvml: Nvml, device: Handle) -> Readings:
        fields = list(self._fields)
        answers = bytes(nvml.nvmlDeviceGetFieldValues(device, list(self._fields.values())))
        readings: Readings = {}
        for one, (_, _, _, _, kind, code, value) in zip(fields, _FIELD.iter_unpack(answers), strict=True):
            name = f"NVML_FI_{one.id}"
            if code != nvml.NVML_SUCCESS:
                if self._library.unsupported(name, code):
                    del self._fields[one]
            elif kind in _VALUES:
                readings[one.stream] = _reading(one.stream, kind, value)
            else:
                self._library.failed(name, "unknown_value_type")
        if not self._fields:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return readings


def _reading(stream: Stream, kind: int, value: bytes) -> Reading:
    layout = _VALUES[kind]
    (number,) = layout.unpack_from(value)
    return Reading(stream.scaled(number), stream.scaled(_WRAPS.get(kind, 0.0)))
