"""What all series of a page have in common."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel_libraries.prometheus.histograms import BucketLayout

Sample = tuple[str, float, Exemplar | None]
"""The prefix of a line, its value, and its exemplar."""

SeriesByKey = dict[bytes, "ExposedSeries"]
"""The series of one metric stream, by the encoded attributes of their points."""


class MalformedPoint(Exception):
    """The point's values are impossible. The series is unchanged."""


class ExposedSeries:
    """One set of labels of one metric family."""

    __slots__ = (
        *("earliest", "encoded", "identity", "keys", "labels"),
        *("late_since", "name", "siblings", "time", "updated"),
    )

    suffixes: ClassVar[tuple[str, ...]] = ("",)
    """The suffixes of the names of its samples."""
    own_label: ClassVar[str | None] = None
    """The label that its samples have besides the labels of the attributes."""

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        """`layout` has the bounds of the family's histograms."""
        self.name = name
        """The name of its family."""
        self.labels = labels
        self.identity = identity
        """The encoded attributes, sorted."""
        self.siblings = siblings
        """All series of its metric stream."""
        self.keys: list[bytes] = []
        """Its own keys in `siblings`."""
        self.time = 0
        """The timestamp of the newest point, in ns since 1970."""
        self.earliest = 0
        """The lowest timestamp that the next point may have, in ns since 1970."""
        self.updated = -math.inf
        """The time of the last update, in s of the page's clock."""
        self.late_since = -math.inf
        """The time of the first late point after the last update, in s of the page's clock."""
        self.encoded: bytes | None = None
        """The part of its message in the protobuf format that does not change. None until a scraper wants it."""

    def is_set_back(self, now: float, patience: float) -> bool:
        """Whether all points have been late for `patience` s. Called for every late point."""
        if self.late_since <= self.updated:
            self.late_since = now
        return now - self.late_since >= patience

    def update(self, point: Any, delta: bool) -> None:
        """Replaces the value by the point's value, or adds a delta to it. Raises `MalformedPoint`."""
        raise NotImplementedError

    @property
    def has_exemplars(self) -> bool:
        """Whether at least one sample has an exemplar."""
        raise NotImplementedError

    def samples(self, *, openmetrics: bool) -> Iterator[Sample]:
        """Its lines, in OpenMetrics or in the Prometheus text format."""
        raise NotImplementedError
