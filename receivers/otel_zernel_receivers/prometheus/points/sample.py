"""The meaning of a sample: the OTLP point that it belongs to, and its part in it."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from otel_zernel.otlp.points import AttributeValue, Descriptor
from otel_zernel_receivers.prometheus.pages.page import Labels, MetricType

SampleRole = Literal["number", "bucket", "sum", "count", "quantile", "created", "native", "target_info", "scope_info"]
Pairs = tuple[tuple[str, AttributeValue], ...]


class SampleScope(NamedTuple):
    """The instrumentation scope of a sample: its labels `otel_scope_*`."""

    name: str
    version: str
    schema_url: str = ""
    attributes: Pairs = ()


class SampleResource(NamedTuple):
    """The target that a sample is about, and the attributes of its resource beyond those of the target."""

    job: str
    instance: str
    attributes: Pairs = ()


class MetricHead(NamedTuple):
    """A metric of OTLP, and its type in the words of Prometheus."""

    descriptor: Descriptor
    type: MetricType


class PointKey(NamedTuple):
    """Identifies a point from scrape to scrape."""

    resource: SampleResource
    scope: SampleScope
    metric: MetricHead
    attributes: bytes
    """Encoded: see `encode_point_pairs`. Tuples of texts would cost the garbage collector 40 ms with 10,000 series."""


@dataclass(frozen=True, slots=True)
class PageSample:
    """A sample that stays after relabelling."""

    role: SampleRole
    point: PointKey
    bound: float = 0.0
    """The upper bound of a bucket, or the quantile."""
    scale: float = 1.0
    maybe_percent: bool = False
    labels: Labels | None = None
    """For `target_info` and `scope_info`: the labels."""
