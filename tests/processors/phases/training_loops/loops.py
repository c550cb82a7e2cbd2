"""Training loops that record their spans, as the ebpf receiver would send them, and their true phases."""

from collections.abc import Callable, Iterator
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


def nanogpt(thread: SimulatedThread) -> None:
    """`get_batch` reads mapped memory. An evaluation now and then, and clipping."""
    for number in range(30):
        if number % 10 == 0:
            for _ in range(3):
                thread.data(1.5, gap_faults=40)
                thread.inference(8)
            thread.host(0.5)
        thread.data(1.5, gap_faults=40)
        thread.forward()
        thread.backward()
        thread.spend("gpu_compute", 1.0)  # clips gradients
        thread.optimizer()
        thread.zero_grad()
        thread.host(0.3)


def data_after_forward(thread: SimulatedThread) -> None:
    """nanoGPT gets the next batch between the forward and the backward pass; here it takes long."""
    for _ in range(20):
        thread.forward(faults=4000)
        thread.data(20)
        thread.gap = {}
        thread.backward()
        thread.optimizer()


def data_after_forward_from_cached_pages(thread: SimulatedThread) -> None:
    """The same with few page faults: large pages of a file that is in memory."""
    for _ in range(20):
        thread.forward(faults=27)
        thread.data(40)
        thread.gap = {}
        thread.backward()
        thread.optimizer()


def copied_batches(thread: SimulatedThread) -> None:
    """Batches are made by computing, and copied to the GPU."""
    for _ in range(30):
        thread.data(3, gap_copies=2)
        thread.forward()
        thread.backward()
        thread.optimizer()


def copied_after_forward(thread: SimulatedThread) -> None:
    """The next batch is made and copied after the forward pass."""
    for _ in range(30):
        thread.forward(copies=2)
        thread.data(12)
        thread.gap = {}
        thread.backward()
        thread.optimizer()


def evaluation_by_hand(thread: SimulatedThread) -> None:
    """An evaluation in one region without gradients that gets its batches by hand."""
    for _ in range(10):
        thread.forward()
        thread.backward()
        thread.optimizer()
        for _ in range(4):
            thread.inference(9, end="operator")
            thread.data(20, gap_faults=30)
        thread.inference(9)


def waits_for_a_lock(thread: SimulatedThread) -> None:
    """With a loader, a thread that is blocked in a pass waits for a lock of Python."""
    for _ in range(20):
        thread.load()
        thread.forward(15, blocked=0.006)
        thread.spend("gpu_compute", 6)
        thread.gap = {}
        thread.backward()
        thread.optimizer()


def clears_first(thread: SimulatedThread) -> None:
    """Gradients are cleared between the data and the pass."""
    for _ in range(20):
        thread.host(3)
        thread.data(9)
        thread.zero_grad()
        thread.forward()
        thread.backward()
        thread.optimizer()


def delayed_policy(thread: SimulatedThread) -> None:
    """Twin-delayed policy gradients: every second update is followed by one of the policy. A target is computed without
    gradients."""
    for number in range(60):
        thread.inference(0.8, 3)
        thread.host(1.2)
        thread.inference(0.7, 6)
        thread.forward(4, 12)
        thread.backward(5)
        thread.optimizer(1)
        if number % 2:
            thread.forward(3, 8)
            thread.backward(4)
            thread.optimizer(1)


def pauses_in_forward(thread: SimulatedThread) -> None:
    """A loss that assigns boxes to targets on the host, after a result of the GPU."""
    for _ in range(20):
        thread.load()
        thread.forward(10)
        thread.spend("gpu_compute", 6)
        thread.forward(2, 6)
        thread.backward()
        thread.optimizer()


def pauses_in_forward_without_a_loader(thread: SimulatedThread) -> None:
    """The same without a loader."""
    for _ in range(20):
        thread.data(5)
        thread.forward(10)
        thread.spend("gpu_compute", 6)
        thread.forward(2, 6)
        thread.backward()
        thread.optimizer()


def tokens(thread: SimulatedThread) -> None:
    """Generation: the host chooses each token, in one region without gradients."""
    for _ in range(10):
        for _ in range(12):
            thread.inference(5, 30, "operator")
            thread.spend("gpu_compute", 1.3)
        thread.inference(5, 30)
        thread.host(20)


def short_rollouts(thread: SimulatedThread) -> None:
    """Short passes and steps of an environment."""
    for _ in range(10):
        for _ in range(8):
            thread.rollout(16, 0.3, 0.25)
        thread.forward()
        thread.backward()
        thread.optimizer()


def gan(thread: SimulatedThread) -> None:
    """Two optimizers of one name, without a loader."""
    for _ in range(40):
        thread.data(3)
        thread.forward(12, 30)
        thread.zero_grad()
        thread.backward(14)
        thread.optimizer()
        thread.forward(6, 15)
        thread.zero_grad()
        thread.backward(9)
        thread.optimizer()


def gan_of_two_loaders(thread: SimulatedThread) -> None:
    """A loader for each of two optimizers."""
    for _ in range(20):
        for _ in range(2):
            thread.load()
            thread.forward()
            thread.backward()
            thread.optimizer()
            thread.zero_grad()


def accumulation(thread: SimulatedThread) -> None:
    """A queue, and an update after every 4th batch."""
    for number in range(40):
        thread.data(8)
        thread.forward()
        thread.backward()
        if number % 4 == 3:
            thread.optimizer()
            thread.zero_grad()


def lbfgs(thread: SimulatedThread, loads: bool = True) -> None:
    """An optimizer that calls the forward and the backward pass."""
    for _ in range(20):
        thread.load() if loads else thread.data(5)
        with thread.around("optimizer"):
            for _ in range(3):
                thread.zero_grad(0.2)
                thread.forward(8)
                thread.backward(10)
                thread.spend("optimizer_step", 2)


def lightning(thread: SimulatedThread) -> None:
    """An optimizer that calls the closure, and then updates."""
    for _ in range(20):
        thread.load()
        with thread.around("optimizer"):
            thread.forward()
            thread.zero_grad(0.2)
            thread.backward()
            thread.spend("optimizer_step", 5)


def in_backward(thread: SimulatedThread, by: int | None = None) -> None:
    """Optimizers that step in backward's hooks. `by` is the thread that runs the hooks, if it is another."""
    for _ in range(20):
        thread.load()
        thread.forward()
        with thread.around("backward"):
            for _ in range(6):
                thread.spend("gpu_compute", 1.5)
                own, thread.thread = thread.thread, by or thread.thread
                thread.optimizer(1.2)
                thread.zero_grad(0.6)
                thread.thread = own


def in_hooks_of_autograd(thread: SimulatedThread) -> None:
    """The same on autograd's own thread."""
    in_backward(thread, 9)


def reinforcement(thread: SimulatedThread) -> None:
    """A rollout without gradients, then some updates."""
    for _ in range(8):
        for _ in range(30):
            thread.inference(1.0, 4)
            thread.host(3.0)
        for _ in range(6):
            thread.forward()
            thread.backward()
            thread.optimizer()


def keras(thread: SimulatedThread) -> None:
    """An optimizer that is not torch's, without a loader."""
    for _ in range(20):
        thread.data(3)
        thread.forward()
        thread.backward()
        thread.update()


def keras_with_a_loader(thread: SimulatedThread) -> None:
    """The same with a loader."""
    for _ in range(20):
        thread.load()
        thread.forward()
        thread.backward()
        thread.update()


def generation(thread: SimulatedThread) -> None:
    """Text generation, without training."""
    for _ in range(10):
        thread.inference(300, 4000)
        thread.host(20)


def queue(thread: SimulatedThread) -> None:
    """A prefetching thread: it loads, and the training thread waits in a queue."""
    loader = SimulatedThread(thread=2, spans=thread.spans)
    for _ in range(30):
        loader.load(20)
        loader.now += 8
        thread.data(6)
        thread.forward()
        thread.backward()
        thread.optimizer()
        thread.zero_grad()


def evaluation_between_epochs(thread: SimulatedThread) -> None:
    """Epochs with a loader, and between them an evaluation on slices of a tensor."""
    for _ in range(3):
        for _ in range(10):
            thread.load()
            thread.forward()
            thread.backward()
            thread.optimizer()
            thread.zero_grad()
        thread.load(0.03)
        for _ in range(6):
            thread.inference(9)
            thread.host(0.6)


def unmarked(thread: SimulatedThread) -> None:
    """Neither a loader nor marks of operators: the pass is what lies before backward."""
    thread.marks = False
    for _ in range(30):
        thread.forward()
        thread.backward()
        thread.optimizer()
        thread.zero_grad()


def compiled(thread: SimulatedThread) -> None:
    """A compiled model: only its loss is marked."""
    for _ in range(30):
        thread.spend("gpu_compute", 9)
        thread.forward(0.5, 3)
        thread.backward()
        thread.optimizer()
        thread.zero_grad()


def by_backward(thread: SimulatedThread) -> None:
    """An optimizer that nothing shows."""
    for _ in range(150):
        thread.data(2)
        thread.forward()
        thread.backward()
        thread.host(1)


LOOPS: dict[str, Callable[[SimulatedThread], None]] = {
    loop.__name__: loop
    for loop in (
        *(nanogpt, gan, gan_of_two_loaders, accumulation, lbfgs, lightning, in_backward, in_hooks_of_autograd),
        *(reinforcement, keras, keras_with_a_loader, generation, queue, evaluation_between_epochs),
        *(unmarked, compiled, by_backward, clears_first, delayed_policy, evaluation_by_hand),
        *(
            data_after_forward,
            data_after_forward_from_cached_pages,
            waits_for_a_lock,
            copied_batches,
            copied_after_forward,
        ),
        *(pauses_in_forward, pauses_in_forward_without_a_loader, tokens, short_rollouts),
    )
}
LOOPS["lbfgs_without_a_loader"] = lambda thread: lbfgs(thread, loads=False)
