"""The steps of the ranks, as spans in the form of docs/spans.md.

All ranks compute, and wait for the last one at the end of each backward pass. One rank is slower than the others. Every
100 steps, the data is late for 20 steps.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training.interval_spans import Ending, ProcessSpan

RANKS, RANKS_OF_HOST = 8, 4
STRAGGLER = 5
BUCKETS = 4
"""Collectives of a step."""
BUCKET_BYTES = 25 << 20
COMMUNICATOR = "5a17c0de5a17c0de"
SECOND = 1_000_000_000


@dataclass
class Step:
    """A step of a rank: its durations in s, by their name in `Rank.spans`."""

    load: float
    forward: float
    backward: float
    wait: float
    optimizer: float


@dataclass
class Rank:
    """A rank with its clock (ns since 1970), the spans and the steps since the last reading."""

    number: int
    now_ns: int
    spans: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    first_pid: int = 4200
    created_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.created_ns = self.now_ns

    @property
    def host(self) -> str:
        return f"node-{self.number // RANKS_OF_HOST}"

    @property
    def gpu(self) -> int:
        """The index of its GPU on the host."""
        return self.number % RANKS_OF_HOST

    @property
    def pid(self) -> int:
        return self.first_pid + self.number

    def spend(self, seconds: float, kind: str = "", name: str = "", phase: str = "gpu_compute") -> None:
        """Lets time pass, within a span if a kind is given."""
        begins, self.now_ns = self.now_ns, self.now_ns + round(seconds * SECOND)
        if kind:
            self.add(kind, name, begins, self.now_ns, phase)

    def add(self, kind: str, name: str, begins: int, ends: int, phase: str, **more: AttributeValue) -> None:
        """Adds a span. The spans of a minute share a trace."""
        attributes = {"zernel.interval": kind, "thread.id": self.pid, "zernel.phase": phase, **more}
        minute = random.Random(f"{self.pid} {begins // (60 * SECOND)}")
        self.spans.append(
            Span(
                trace_id=minute.randbytes(16),
                span_id=random.randbytes(8),
                name=name,
                kind=Span.SPAN_KIND_INTERNAL,
                start_time_unix_nano=begins,
                end_time_unix_nano=ends,
                attributes=key_values(attributes),
            )
        )


class TrainingJob:
    """The ranks of the job. Time starts at `now_ns`."""

    def __init__(self, now_ns: int) -> None:
        self.ranks = [Rank(number, now_ns) for number in range(RANKS)]
        self._steps = 0
        self._collectives = 0

    def train_until(self, now_ns: int) -> None:
        """Adds the steps up to a time."""
        while self.ranks[0].now_ns < now_ns:
            self._step()

    def _step(self) -> None:
        stalls = self._steps % 100 >= 80
        steps = [_durations(rank.number, stalls=stalls) for rank in self.ranks]
        begun = [_compute(rank, step) for rank, step in zip(self.ranks, steps, strict=True)]
        meeting = max(rank.now_ns for rank in self.ranks) + round(random.uniform(0.004, 0.006) * SECOND)
        for rank, step, backward in zip(self.ranks, steps, begun, strict=True):
            step.wait = (meeting - rank.now_ns) / SECOND
            self._collect(rank, backward)
            rank.spend(step.wait, "ddp", "c10d::Reducer::finalize_backward")
            rank.add("backward", "backward", backward, rank.now_ns, "gpu_compute")
            rank.spend(step.optimizer, "optimizer", "Optimizer.step#AdamW.step", "optimizer_step")
            rank.spend(0.0004, "zero_grad", "Optimizer.zero_grad#AdamW.zero_grad", "optimizer_step")
            rank.steps.append(step)
        self._steps += 1
        self._collectives += BUCKETS

    def _collect(self, rank: Rank, backward: int) -> None:
        """The collectives that autograd's thread puts into the queue during a backward pass."""
        for bucket in range(BUCKETS):
            begins = backward + (rank.now_ns - backward) * (bucket + 1) // (BUCKETS + 1)
            more: dict[str, AttributeValue] = {
                "thread.id": rank.pid + 1000,
                "zernel.nccl.operation": "all_reduce",
                "zernel.nccl.bytes": BUCKET_BYTES,
                "zernel.nccl.communicator": "0x5a17c0de",
                "zernel.rank": rank.number,
                "zernel.world_size": RANKS,
                "zernel.timing.source": "host_enqueue",
                "zernel.collective.sequence": self._collectives + bucket + 1,
                "zernel.collective.communicator": COMMUNICATOR,
            }
            rank.add("collective", "all_reduce", begins, begins + 9_000, "gpu_compute", **more)


def _durations(rank: int, *, stalls: bool) -> Step:
    """The durations of a step. A rank adds up to 3 % at random."""
    slow = 1.25 if rank == STRAGGLER else 1.0
    load = random.uniform(0.08, 0.12) if stalls else random.uniform(0.002, 0.004)
    forward, backward = (slow * lasts * random.uniform(1, 1.03) for lasts in (0.045, 0.09))
    return Step(load, forward, backward, 0.0, 0.008)


def _compute(rank: Rank, step: Step) -> int:
    """Loads and computes, up to the wait for the other ranks. Returns the start of the backward pass."""
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    rank.spend(step.load, "data_loading", loader, "data_loading")
    rank.spend(step.forward)
    begins = rank.now_ns
    rank.spend(step.backward)
    return begins


def killed_rank(now_ns: int) -> Rank:
    """Rank 3 as it was before its launcher started all ranks again, with the span of its end. It had another pid."""
    rank = Rank(3, now_ns, first_pid=4100)
    rank.spans.append(_end(rank.pid, now_ns))
    return rank


def _end(pid: int, now_ns: int) -> Span:
    """The end of a process that was killed for lack of memory."""
    ends = now_ns - SECOND
    killed = Ending("signal", signal=9, signal_name="SIGKILL", is_out_of_memory=True)
    span = ProcessSpan(pid, ends - 60 * SECOND, ends, killed).to_span()
    span.trace_id, span.span_id = random.randbytes(16), random.randbytes(8)
    return span


def resource_of(rank: Rank) -> dict[str, AttributeValue]:
    """The attributes of a rank's process."""
    return {
        "service.name": "pretrain",
        "service.instance.id": f"{rank.host}/{rank.pid}",
        "host.name": rank.host,
        "process.pid": rank.pid,
        "process.parent_pid": 4000,
        "process.creation.time": datetime.fromtimestamp(rank.created_ns / SECOND, UTC).isoformat(
            timespec="milliseconds"
        ),
        "process.executable.name": "python3.12",
        "zernel.job.id": "pretrain-1",
        "zernel.rank": rank.number,
        "zernel.world_size": RANKS,
        "zernel.local_rank": rank.gpu,
        "zernel.rank.source": "nccl",
    }


def hosts() -> Iterator[str]:
    """The names of the hosts."""
    return (f"node-{number}" for number in range(RANKS // RANKS_OF_HOST))
