"""The metrics about a scrape, by the names of Prometheus: `up`, `scrape_duration_seconds` and so on."""

from collections.abc import Mapping

import numpy as np

from otel_zernel.otlp.points import Descriptor, MetricKind, delimited
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel_receivers.prometheus.points.encoding import encode_head_metric, encode_point_pairs
from otel_zernel_receivers.prometheus.points.numbers import NumberTemplate
from otel_zernel_receivers.prometheus.points.resolving import OWN_SCOPE
from otel_zernel_receivers.prometheus.points.sample import MetricHead, Pairs, PointKey, SampleResource

REPORTED: Mapping[str, tuple[str, str]] = {
    "up": ("", "1 if the last scrape of the target succeeded, else 0."),
    "scrape_duration_seconds": ("s", "Duration of the scrape."),
    "scrape_samples_scraped": ("", "Samples on the page."),
    "scrape_samples_post_metric_relabeling": ("", "Samples that relabelling kept."),
    "scrape_series_added": ("", "Series that were not on the page before."),
}
"""Unit and description by name."""
EXTRA: Mapping[str, tuple[str, str]] = {
    "scrape_timeout_seconds": ("s", "The configured scrape_timeout."),
    "scrape_sample_limit": ("", "The configured sample_limit; 0 without a limit."),
    "scrape_body_size_bytes": ("By", "Size of the page, uncompressed; -1 beyond body_size_limit."),
}
"""The same for `report_extra_scrape_metrics`."""
_KIND: MetricKind = "gauge"


class ScrapeReport:
    """Encodes the report of one target."""

    def __init__(self, resource: SampleResource, attributes: Pairs, *, extra: bool) -> None:
        about = {**REPORTED, **EXTRA} if extra else REPORTED
        heads = [MetricHead(Descriptor(name, unit, _KIND, text), "gauge") for name, (unit, text) in about.items()]
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
