"""A job for the tests whose ranks train together: they leave each collective at the same time."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from tests.processors.phases.training import MS, START, Loop, attributes_of, batch_of, resource_of, span_of

TRANSFER = 2.0
"""How long (ms) a collective takes once all ranks have arrived."""


@dataclass
class Job:
    """A training job. Each step has two collectives on the communicator of all ranks, and waits for the second."""

    size: int = 4
    communicator: str = "c0ffee"
    """The id that the ranks share; empty if it is unknown."""
    loads: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """By rank and step: how long (ms) a load takes, if not 5 ms."""
    forwards: Mapping[int, float] = field(default_factory=dict)
    """By rank: how long (ms) a forward pass takes, if not 10 ms."""
    is_counted: bool = True
    """Whether the collectives have numbers."""
    skew: Mapping[int, float] = field(default_factory=dict)
    """By rank: how much (ms) later it leaves a collective."""
    loops: list[Loop] = field(init=False)
    _sorted: dict[int, tuple[list[Span], list[int]]] = field(default_factory=dict, init=False, repr=False)
    """What `_by_end` has returned last, by rank."""

    def __post_init__(self) -> None:
        self.loops = [Loop(now=1.7 * rank) for rank in range(self.size)]

    def train(self, steps: int) -> "Job":
        """Trains for some steps on all ranks."""
        for step in range(1, steps + 1):
            for rank, loop in enumerate(self.loops):
                loop.load(self.loads.get((rank, step), 5.0)).wait(self.forwards.get(rank, 10.0)).do("backward", 12)
            left = max(loop.now for loop in self.loops) + TRANSFER
            for rank, loop in enumerate(self.loops):
                self._reduce(loop, 2 * step - 1, left)
                self._reduce(loop, 2 * step, left)
                leaves = left + self.skew.get(rank, 0.0)
                loop.do("sync", leaves - loop.now, name="cudaStreamSynchronize")
                loop.do("optimizer", 4).do("zero_grad", 1).wait(0.1)
        for loop in self.loops:
            loop.load()
        return self

    def _reduce(self, loop: Loop, number: int, left: float) -> None:
        """A collective that was enqueued and is over when the ranks leave it."""
        for source, end in (("host_enqueue", loop.now), ("host_upper_bound", left)):
            span = span_of("collective", loop.now, end, name="all_reduce", thread=9)
            more: dict[str, AttributeValue] = {"zernel.timing.source": source, "zernel.world_size": self.size}
            if self.is_counted:
                more["zernel.collective.sequence"] = number
            if self.communicator:
                more["zernel.collective.communicator"] = self.communicator
            span.attributes.extend(key_values(more))
            loop.spans.append(span)

    def in_time(self) -> Iterator[Batch]:
        """What a receiver sends about all ranks, every 200 ms."""
        last = max(loop.now for loop in self.loops)
        for at in range(0, int(last) + 200, 200):
            for rank in range(self.size):
                yield self.batch(rank, ends=(at, at + 200))

    def batch(
        self, rank: int, since: float = 0.0, ends: tuple[float, float] = (0.0, math.inf), **more: AttributeValue
    ) -> Batch:
        """What a receiver that attached `since` ms sends about one rank: the spans that end in this time."""
        in_order, sorted_ends = self._by_end(rank)
        first, last = (bisect_left(sorted_ends, START + end * MS) for end in ends)
        spans = [span for span in in_order[first:last] if span.start_time_unix_nano >= START + since * MS]
        known: dict[str, AttributeValue] = {
            "zernel_rank": rank,
            "zernel_world_size": self.size,
            "zernel_job_id": "bert",
            **more,
        }
        resource = resource_of(100 + rank, **known)  # type: ignore[arg-type]  # tests pass attributes
        return batch_of(spans, resource)

    def _by_end(self, rank: int) -> tuple[list[Span], list[int]]:
        """The spans of a rank in the order of their ends, and the ends."""
        spans = self.loops[rank].spans
        if len(spans) != len(self._sorted.get(rank, ((), ()))[0]):
            in_order = sorted(spans, key=lambda span: span.end_time_unix_nano)
            self._sorted[rank] = in_order, [span.end_time_unix_nano for span in in_order]
        return self._sorted[rank]


def by_trace(spans: Sequence[Span]) -> dict[bytes, list[Span]]:
    """The spans of each trace."""
    traces: dict[bytes, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    return traces


def of_job(spans: Sequence[Span]) -> dict[bytes, list[Span]]:
    """The traces of the steps of a job."""
    return {
        trace_id: trace
        for trace_id, trace in by_trace(spans).items()
        if any(number_of(span) is not None for span in trace)
    }


def named(spans: Sequence[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def number_of(span: Span) -> int | None:
    """The number of the job's step."""
    number = attributes_of(span.attributes).get("zernel.job.step.number")
    return number if isinstance(number, int) else None
