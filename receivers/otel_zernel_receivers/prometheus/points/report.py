"""The metrics about a scrape, by the names of Prometheus: `up`, `scrape_duration_seconds` and so on."""

from collections.abc import Mapping

import numpy as np

from otel_zernel.otlp.points import Descriptor, MetricKind
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.prometheus.declared import EXTRA, REPORTED
from otel_zernel_receivers.prometheus.points.encoding import encode_head_metric, encode_point_pairs
from otel_zernel_receivers.prometheus.points.numbers import NumberTemplate
from otel_zernel_receivers.prometheus.points.resolving import OWN_SCOPE
from otel_zernel_receivers.prometheus.points.sample import MetricHead, Pairs, PointKey, SampleResource

_KIND: MetricKind = "gauge"


class ScrapeReport:
    """Encodes the report of one target."""

    def __init__(self, resource: SampleResource, attributes: Pairs, *, extra: bool) -> None:
        about = {**REPORTED, **EXTRA} if extra else REPORTED
        heads = [MetricHead(Descriptor(one.name, one.unit, _KIND, one.description), "gauge") for one in about.values()]
        self.origin = (resource, OWN_SCOPE)
        self.names = tuple(about)
        self._heads = heads
        self._attributes = encode_point_pairs(_KIND, attributes)
        self._template = NumberTemplate([[PointKey(*self.origin, head, self._attributes) for head in heads]])

    def encode(self, values: Mapping[str, float], time_ns: int) -> bytes:
        """The metrics. `values` by name."""
        numbers = np.array([values[name] for name in self.names], np.float64)
        return self._template.encode(numbers, time_ns, 0)[0]

    def ends(self, time_ns: int) -> bytes:
        """The staleness points of the report."""
        point = delimited(1, self._attributes + encode_staleness(_KIND, time_ns))
        return b"".join(encode_head_metric(head, point) for head in self._heads)
