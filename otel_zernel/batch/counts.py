"""The number of items in OTLP messages: metric data points, spans, log records and samples of profiles."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from otel_zernel.batch.signals import MESSAGE_TYPES, SignalData
from otel_zernel.batch.thin import ADDABLE, EXPLICIT_HISTOGRAMS, LEVELS

_LEVELS: Final = {MESSAGE_TYPES[signal].DESCRIPTOR.name: levels for signal, levels in LEVELS.items()}


def levels_of(message: Message) -> tuple[str, str, str]:
    """The names in `LEVELS` for a message, be it thin or not."""
    return _LEVELS[message.DESCRIPTOR.name]


def parts_of_scopes(message: Message) -> Iterator[Sequence[Any]]:
    """The metrics, spans, log records or profiles of each scope."""
    resources, scopes, parts = levels_of(message)
    for resource in getattr(message, resources):
        for scope in getattr(resource, scopes):
            yield getattr(scope, parts)


def count_items(message: SignalData) -> int:
    """The number of items in a message."""
    if isinstance(message, MetricsData):
        return sum(len(points(metric)) for metrics in parts_of_scopes(message) for metric in metrics)
    if isinstance(message, ProfilesData):
        return sum(len(profile.samples) for profiles in parts_of_scopes(message) for profile in profiles)
    return sum(map(len, parts_of_scopes(message)))


def points(metric: Metric):  # type: ignore[no-untyped-def]  # five repeated fields without a common type
    """The data points of a metric of any type. An empty tuple if the metric has no data."""
    data_type = metric.WhichOneof("data")
    return getattr(metric, data_type).data_points if data_type else ()


def temporalities_of(metrics: MetricsData) -> frozenset[int]:
    """The aggregation temporalities of the sums and histograms in a message."""
    seen: set[int] = set()
    for metric in (metric for of_scope in parts_of_scopes(metrics) for metric in of_scope):
        kind = metric.WhichOneof("data") or ""
        if kind in ADDABLE:
            seen.add(getattr(metric, kind).aggregation_temporality)
        if kind == "histogram":
            seen.add(EXPLICIT_HISTOGRAMS)
    return frozenset(seen)


class ItemCount(NamedTuple):
    """The number of items of each signal, in one batch or in many."""

    points: int = 0
    spans: int = 0
    log_records: int = 0
    samples: int = 0

    def plus(self, other: "ItemCount") -> "ItemCount":
        """The counts of both together. (`+` joins tuples.)"""
        return ItemCount(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def minus(self, other: "ItemCount") -> "ItemCount":
        """The counts without those of a part."""
        return ItemCount(self[0] - other[0], self[1] - other[1], self[2] - other[2], self[3] - other[3])

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def verb(self) -> str:
        """The form of `to be` in a sentence about the items."""
        return "is" if self.total == 1 else "are"

    def __str__(self) -> str:
        """`3 metric points and 1 span`; signals without items are left out."""
        units = ("metric point", "span", "log record", "profile sample")
        named = zip(self, units, strict=True)
        parts = [f"{count:,} {unit}{'' if count == 1 else 's'}" for count, unit in named if count] or ["0 items"]
        return ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + parts[-1]
