"""The latencies of one process, or of all processes together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.durations import RecentDurations
from otel_zernel_libraries.training.points import LONGEST_TEXT
from otel_zernel_libraries.training.state.readers import TooManySeries

LAUNCHES: Final = semconv.CUDA_LAUNCH_LATENCY
COLLECTIVES: Final = semconv.NCCL_COLLECTIVE_DURATION
WAITS: Final = semconv.DATALOADER_WAIT
_MOST_OPERATIONS: Final = 16


@dataclass(slots=True)
class Latencies:
    """Durations (s) of the last minute."""

    launches: RecentDurations = field(default_factory=RecentDurations)
    """Of CUDA launches."""
    waits: RecentDurations = field(default_factory=RecentDurations)
    """Of waits for the DataLoader."""
    collectives: dict[str, RecentDurations] = field(default_factory=dict)
    """By operation (`all_reduce`); it may be empty."""

    def of(self, metric: str, attributes: Mapping[str, AttributeValue]) -> RecentDurations:
        """The distribution that a metric describes. Raises `TooManySeries`."""
        if metric == LAUNCHES:
            return self.launches
        if metric == WAITS:
            return self.waits
        operation = str(attributes.get(semconv.NCCL_OPERATION, ""))[:LONGEST_TEXT]
        if operation not in self.collectives and len(self.collectives) >= _MOST_OPERATIONS:
            raise TooManySeries
        return self.collectives.setdefault(operation, RecentDurations())

    def all(self) -> Iterator[RecentDurations]:
        """All distributions."""
        yield self.launches
        yield self.waits
        yield from self.collectives.values()
