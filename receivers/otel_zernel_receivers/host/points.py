"""Encodes the readings of a scrape, and the ends of series that are missing from it."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import (
    Descriptor,
    Period,
    Scope,
    encode_metric,
    encode_number_point,
    encode_point_attributes,
    encode_resource,
    encode_resource_metrics,
)
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.host.metrics import METRICS
from otel_zernel_receivers.host.reading import PointAttributes, Reading, Subject

SCOPE = Scope("otel_zernel_receivers.host")
_DESCRIPTORS = {name: Descriptor(name, one.unit, one.kind, one.description) for name, one in METRICS.items()}
_Series = tuple[str, PointAttributes]


class SubjectEncoder:
    """Encodes the readings of one resource. It remembers the series of the last scrape."""

    def __init__(self, subject: Subject) -> None:
        self._resource = encode_resource(dict(subject.attributes))
        self._start_ns = subject.start_ns
        self._series: set[_Series] = set()

    def encode(self, readings: Iterable[Reading], time_ns: int) -> Batch:
        """The readings at this time, and staleness points of series that are missing."""
        points: defaultdict[str, list[bytes]] = defaultdict(list)
        sums, others = Period(self._start_ns, time_ns), Period(0, time_ns)
        series = set()
        for metric, value, attributes in readings:
            series.add((metric, attributes))
            period = sums if METRICS[metric].kind == "sum" else others
            points[metric].append(encode_number_point(_encoded(attributes), value, period))
        for metric, attributes in self._series - series:
            stale = encode_staleness(METRICS[metric].kind, time_ns)
            points[metric].append(delimited(1, _encoded(attributes) + stale))
        self._series = series
        if not points:
            return Batch()
        metrics = [encode_metric(_DESCRIPTORS[name], b"".join(found)) for name, found in points.items()]
        encoded = encode_resource_metrics(self._resource, SCOPE, metrics)
        return Batch.encoded(metrics=encoded, point_count=sum(map(len, points.values())))


@lru_cache(maxsize=16384)
def _encoded(attributes: PointAttributes) -> bytes:
    return encode_point_attributes(dict(attributes))
