"""The steps of the ranks, as spans in the form of docs/development/spans.md.

All ranks compute, and wait for the last one at the end of each backward pass. One rank is slower than the others. Every
100 steps, the data is late for 20 steps.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training.interval_spans import CollectiveSpan, Ending, ProcessSpan, ThreadSpan
from otel_zernel_libraries.training.ledger import STATES, Activity, Snapshot
from otel_zernel_libraries.training.ledger.snapshots import (
    KNOWS_FILE_FAULTS,
    KNOWS_READ,
    KNOWS_TIMES,
    LAYOUT,
    read_snapshots,
)

RANKS, RANKS_OF_HOST = 8, 4
STRAGGLER = 5
BUCKETS = 4
"""Collectives of a step."""
BUCKET_BYTES = 25 << 20
COMMUNICATOR = "5a17c0de5a17c0de"
SECOND = 1_000_000_000
LAUNCHES = 400
"""CUDA launches of a step by the training thread."""
SAMPLES_A_SECOND = 19
"""Of a thread on a CPU. All of them see an operator."""
_BEFORE = read_snapshots(bytes(LAYOUT.size))[0]._replace(known=KNOWS_TIMES | KNOWS_READ | KNOWS_FILE_FAULTS)
"""The counters of a thread that has done nothing."""


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
    counted: Snapshot = _BEFORE
    """The counters of its training thread."""

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

    def spend(
        self,
        seconds: float,
        kind: str = "",
        name: str = "",
        phase: str = "gpu_compute",
        *,
        waits: Activity | None = None,
        launches: int = 0,
    ) -> None:
        """Lets time pass, within a span if a kind is given. The thread is on a CPU, if it does not wait."""
        begins, before = self.now_ns, self.counted
        self.now_ns += round(seconds * SECOND)
        state = STATES.index(waits)
        times = [time + (at == state) * (self.now_ns - begins) for at, time in enumerate(before.times)]
        self.counted = before._replace(
            time=self.now_ns,
            times=tuple(times),
            first_launch=begins if launches else 0,
            last_launch=self.now_ns - 1 if launches else before.last_launch,
            launches=before.launches + launches,
            samples=(0, times[0] * SAMPLES_A_SECOND // SECOND, 0, 0),
        )
        if kind:
            self.add(kind, name, begins, before, phase)

    def add(self, kind: str, name: str, begins: int, before: Snapshot, phase: str = "gpu_compute") -> None:
        """Adds a span that ends now. `before` are the counters at its begin."""
        snapshots = before.to_bytes() + self.counted.to_bytes()
        self.keep(ThreadSpan(kind, name, self.pid, begins, self.now_ns, phase, snapshots=snapshots).to_span())

    def keep(self, span: Span) -> None:
        """Adds a span. The spans of a minute share a trace."""
        minute = random.Random(f"{self.pid} {span.start_time_unix_nano // (60 * SECOND)}")
        span.trace_id, span.span_id = minute.randbytes(16), random.randbytes(8)
        self.spans.append(span)


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
        for rank, step, (backward, counted) in zip(self.ranks, steps, begun, strict=True):
            step.wait = (meeting - rank.now_ns) / SECOND
            self._collect(rank, backward)
            rank.spend(step.wait, "ddp", "c10d::Reducer::finalize_backward", waits=Activity.COLLECTIVE)
            rank.add("backward", "backward", backward, counted)
            _optimize(rank, step)
            rank.spend(0.0004, "zero_grad", "Optimizer.zero_grad#AdamW.zero_grad", "optimizer_step")
            rank.steps.append(step)
        self._steps += 1
        self._collectives += BUCKETS

    def _collect(self, rank: Rank, backward: int) -> None:
        """The collectives that autograd's thread puts into the queue during a backward pass."""
        for bucket in range(BUCKETS):
            begins = backward + (rank.now_ns - backward) * (bucket + 1) // (BUCKETS + 1)
            collective = CollectiveSpan(
                operation="all_reduce",
                thread=rank.pid + 1000,
                start_ns=begins,
                end_ns=begins + 9_000,
                timing_source="host_enqueue",
                bytes=BUCKET_BYTES,
                communicator="0x5a17c0de",
                phase="gpu_compute",
                shared_communicator=COMMUNICATOR,
                sequence=self._collectives + bucket + 1,
                rank=rank.number,
                world_size=RANKS,
            )
            rank.keep(collective.to_span())


def _durations(rank: int, *, stalls: bool) -> Step:
    """The durations of a step. A rank adds up to 3 % at random."""
    slow = 1.25 if rank == STRAGGLER else 1.0
    load = random.uniform(0.08, 0.12) if stalls else random.uniform(0.002, 0.004)
    forward, backward = (slow * lasts * random.uniform(1, 1.03) for lasts in (0.045, 0.09))
    return Step(load, forward, backward, 0.0, 0.008)


def _compute(rank: Rank, step: Step) -> tuple[int, Snapshot]:
    """Loads and computes, up to the wait for the other ranks. Returns the start of the backward pass."""
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    rank.spend(step.load, "data_loading", loader, "data_loading", waits=Activity.LOCK)
    rank.spend(step.forward, launches=LAUNCHES * 3 // 4)
    begins, counted = rank.now_ns, rank.counted
    rank.spend(step.backward)
    return begins, counted


def _optimize(rank: Rank, step: Step) -> None:
    """The optimizer reads the norm of the gradients, so it waits for the GPU."""
    begins, counted = rank.now_ns, rank.counted
    rank.spend(0.1 * step.optimizer, launches=LAUNCHES // 4)
    rank.spend(0.9 * step.optimizer, "sync", "cudaStreamSynchronize", "optimizer_step", waits=Activity.GPU_WAIT)
    name = "Optimizer.step#AdamW.step"
    rank.add("optimizer", name, begins, counted, "optimizer_step")


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
