"""A thread of a training loop in simulated time: its spans, as the ebpf receiver sends them, and its true phases."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.processors.phases.training import MS, START, span_of

LATE, EARLY = 0.1, 0.2
"""The first operator begins this long after its pass, and the last one this long before the end of the pass, in ms."""

Truth = tuple[str, int, int]
"""A phase, its start and its end in ns."""


@dataclass
class SimulatedThread:
    """A thread of a training process. Times in ms."""

    now: float = 0.0
    thread: int = 1
    spans: list[Span] = field(default_factory=list)
    truths: list[Truth] = field(default_factory=list)
    marks: bool = True
    """Whether operators are marked."""
    gap: dict[str, float] = field(default_factory=dict)
    """The evidence since the last mark."""

    def spend(self, phase: str, lasts: float, **evidence: float) -> None:
        """Spends time in a phase that no span shows."""
        self.truths.append((phase, START + round(self.now * MS), START + round((self.now + lasts) * MS)))
        self.now += lasts
        for name, value in evidence.items():
            self.gap[name] = self.gap.get(name, 0) + value

    def host(self, lasts: float) -> None:
        """Other code."""
        self.spend("unknown", lasts)

    def data(self, lasts: float, **evidence: float) -> None:
        """Gets a batch without a loader. Without other evidence it is blocked."""
        self.spend("data_loading", lasts, **(evidence or {"gap_blocked": lasts / 1000}))

    def scope(self, kind: str, phase: str, lasts: float) -> None:
        """Spends time in a span."""
        start = self.now
        self.spend(phase, lasts)
        self.end_scope(kind, start)

    def end_scope(self, kind: str, start: float) -> None:
        """A span from `start` to now."""
        self.spans.append(span_of(kind, start, self.now, thread=self.thread))
        if kind != "zero_grad":
            self.gap = {}

    @contextmanager
    def around(self, kind: str) -> Iterator[None]:
        """A span around others."""
        start = self.now
        yield
        self.end_scope(kind, start)

    def load(self, lasts: float = 5.0) -> None:
        self.scope("data_loading", "data_loading", lasts)

    def backward(self, lasts: float = 12.0) -> None:
        self.scope("backward", "gpu_compute", lasts)

    def optimizer(self, lasts: float = 4.0) -> None:
        self.scope("optimizer", "optimizer_step", lasts)

    def zero_grad(self, lasts: float = 0.5) -> None:
        self.scope("zero_grad", "optimizer_step", lasts)

    def forward(self, lasts: float = 10.0, count: int = 20, **tail: float) -> None:
        """A forward pass with gradients: its first and last operators are marked."""
        tails = {f"tail_{name}": value for name, value in tail.items()}
        self.run(self.now + LATE, self.now + lasts - EARLY, operators_count=count, grad=True, **tails)
        self.spend("gpu_compute", lasts)
        self.gap = {}

    def learn(self, backward: float = 12.0, optimizer: float = 4.0) -> None:
        """What follows a forward pass."""
        self.backward(backward)
        self.optimizer(optimizer)

    def train(self, lasts: float = 10.0, count: int = 20, **tail: float) -> None:
        """A forward pass and what follows it."""
        self.forward(lasts, count, **tail)
        self.learn()

    def inference(self, lasts: float = 6.0, count: int = 20, end: str = "region") -> None:
        """A pass without gradients."""
        self.run(self.now, self.now + lasts, operators_count=count, grad=False, operators_end=end)
        self.spend("gpu_compute", lasts)
        self.gap = {}

    def rollout(self, parts: int, computes: float, acts: float) -> None:
        """Short passes without gradients that the receiver merges, and an environment."""
        edges = [
            round(1000 * at) for n in range(parts) for at in (n * (computes + acts), n * (computes + acts) + computes)
        ]
        end = self.now + edges[-1] / 1000
        extra = {"operators_parts": parts, "operators_edges": " ".join(map(str, edges)), "operators_end": "region"}
        self.run(self.now, end, operators_count=parts, grad=False, **extra)
        self.gap = {}
        for _ in range(parts):
            self.spend("gpu_compute", computes)
            self.host(acts)

    def update(self, lasts: float = 4.0) -> None:
        """An optimizer that is not torch's."""
        self.run(self.now + LATE, self.now + lasts, operators_count=9, grad=False, operators_kind="update")
        self.spend("optimizer_step", lasts)
        self.gap = {}

    def run(self, start: float, end: float, **more: object) -> None:
        """A run of operators."""
        if self.marks:
            self.spans.append(span_of("operators", start, end, thread=self.thread, **{**more, **self.gap}))  # type: ignore[arg-type]
