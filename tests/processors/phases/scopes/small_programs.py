"""Small training programs that wait in known places, with their own clocks. Their times are drawn."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_processors.phases.intake.intervals import Operators
from tests.processors.phases.scopes.counted_thread import CountedThread
from tests.processors.phases.training import MS, START

STEPS = 24
_NOTHING: Mapping[str, float] = MappingProxyType({})
_RUNS = ("forward", "inference", "in_place", "noise", "batch")


@dataclass(frozen=True)
class Part:
    """A part of the thread's time: [start, end) in ns."""

    start: int
    end: int
    position: Position
    spent: Mapping[Activity, int]
    """ns by activity."""


@dataclass
class Program:
    """A training thread that records where it is, and what it does there. Times are in ms."""

    random: Random
    thread: CountedThread = field(default_factory=CountedThread)
    truth: list[Part] = field(default_factory=list)

    def part(
        self,
        position: Position,
        on_cpu: float,
        waits: Mapping[str, float] = _NOTHING,
        *,
        operators: int = 0,
        compiled: int = 0,
        writes: float = 0,
        **counted: int,
    ) -> None:
        """Spends about these times on a CPU and in waits. Compiled operators are not counted. `writes` is the part
        of the waits in system calls that write."""
        scale = self.random.uniform(0.7, 1.5)
        waits = {name: time * scale for name, time in waits.items()}
        start = START + self.thread.snapshot.time
        self.thread.spend(on_cpu * scale, waits, operators=operators, writing=round(writes * scale * MS), **counted)
        computes = operators or compiled or position is Position.BACKWARD
        spent = {Activity.OPERATOR if computes else Activity.PYTHON: round(on_cpu * scale * MS)}
        spent |= {Activity(name): round(time * MS) for name, time in waits.items()}
        self.truth.append(Part(start, START + self.thread.snapshot.time, position, spent))

    @contextmanager
    def span(self, kind: str, count: int = 6, *, is_loss: bool = False) -> Iterator[None]:
        """A span around parts. A run of operators has `count` operators."""
        begin = self.thread.snapshot
        yield
        operators = Operators(count, is_open=True, is_loss=is_loss) if kind in _RUNS else None
        self.thread.add(kind, begin, operators=operators)

    def load(self, waits: Mapping[str, float] = _NOTHING, on_cpu: float = 0.3, **counted: int) -> None:
        """Gets a batch from a DataLoader."""
        with self.span("data_loading"):
            self.part(Position.LOAD, on_cpu, waits, **counted)

    def forward(self, waits: Mapping[str, float] = _NOTHING, count: int = 6) -> None:
        """A forward pass with waits in its middle."""
        with self.span("forward", count):
            self.part(Position.FORWARD, 0.4, operators=count)
            if waits:
                self.part(Position.FORWARD, 0.02, waits, operators=1)
            self.part(Position.FORWARD, 0.3, operators=1)

    def learn(self, backward: float = 1.4) -> None:
        """The backward pass and the optimizer."""
        with self.span("backward"):
            self.part(Position.BACKWARD, backward)
        with self.span("optimizer"):
            self.part(Position.OPTIMIZER, 0.4)
        with self.span("zero_grad"):
            self.part(Position.ZERO_GRAD, 0.1)


def feature_server(program: Program) -> None:
    """A batch of 30,000 bytes from a server, which is asked for 60 rows."""
    program.part(Position.LOAD, 0.1, {"socket": 20}, read=30_000, written=1_200)
    program.forward()
    program.learn()


def small_features(program: Program) -> None:
    """As `feature_server`, with 12,000 bytes."""
    program.part(Position.LOAD, 0.1, {"socket": 20}, read=12_000, written=400)
    program.forward()
    program.learn()


def parsed_features(program: Program) -> None:
    """A batch of 60,000 bytes from a server, which are parsed."""
    program.part(Position.LOAD, 8, {"socket": 3}, read=60_000, written=900)
    program.forward()
    program.learn()


def cached_texts(program: Program) -> None:
    """A batch of 32,000 bytes of cached files, whose tokens are looked up."""
    program.part(Position.LOAD, 6, read=32_000)
    program.forward()
    program.learn()


def files(program: Program) -> None:
    """A batch from files that are not cached."""
    program.part(Position.LOAD, 0.5, {"file": 9}, read=120_000)
    program.forward()
    program.learn()


def mapped_tokens(program: Program) -> None:
    """A batch from a memory map that is not cached."""
    program.part(Position.LOAD, 0.4, {"fault": 6}, file_faults=40, major_faults=30)
    program.forward()
    program.learn()


def prefetching_thread(program: Program) -> None:
    """A thread makes batches, and the training thread takes them from a queue."""
    program.part(Position.LOAD, 0.05, {"lock": 15, "gil": 0.2})
    program.forward()
    program.learn()


def prefetching_process(program: Program) -> None:
    """A process makes batches. The pipe of its queue has their names in shared memory."""
    program.part(Position.LOAD, 0.2, {"pipe": 12}, read=600)
    program.forward()
    program.learn()


def prefetched_to_the_device(program: Program) -> None:
    """A thread makes batches. The training thread converts them, and copies them to the device."""
    program.part(Position.LOAD, 2, {"lock": 9, "copy": 1}, copies=2, copied=400_000)
    program.forward()
    program.learn()


def metric_in_python(program: Program) -> None:
    """After the step a metric is computed in Python."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 18)


def metric_and_fsync(program: Program) -> None:
    """After the step a metric is computed in Python, and written to a file by fsync."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 6, {"file": 9}, writes=9, read=4096, written=2000)


def http_log(program: Program) -> None:
    """After the step a request sends the loss to a server, which answers with 1,200 bytes."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.4, {"socket": 11}, read=1_200, written=500)


def https_log(program: Program) -> None:
    """As `http_log`, over a new encrypted connection: 8,000 bytes are certificates."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 2, {"socket": 25}, read=8_600, written=1_400)


def parsed_answer(program: Program) -> None:
    """A batch of 4,000 bytes from a server, which takes 4 ms to parse."""
    program.part(Position.LOAD, 4, {"socket": 9}, read=4_000, written=300)
    program.forward()
    program.learn()


def few_texts(program: Program) -> None:
    """A batch of 12,000 bytes of cached files, beside a line of progress."""
    program.part(Position.LOAD, 6, read=12_000, written=150)
    program.forward()
    program.learn()


def files_beside_a_log(program: Program) -> None:
    """A batch of 120,000 bytes from files, and a line of 20,000 bytes in a log."""
    program.part(Position.LOAD, 0.5, {"file": 9}, read=120_000, written=20_000)
    program.forward()
    program.learn()


def rows_of_a_table(program: Program) -> None:
    """After the step a database changes four pages."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 3, {"file": 9}, writes=9, read=16_384, written=18_000)


def full_pipe(program: Program) -> None:
    """After the step a line is written to a pipe that is full. The line has the use of memory, from /proc."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.1, {"pipe": 14}, writes=14, read=40, written=100)


def sleeping_logger(program: Program) -> None:
    """After the step the program sleeps."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.1, {"timer": 14})


def flushing_logger(program: Program) -> None:
    """After the step a logger of another thread is flushed."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 1.2, {"lock": 16, "gil": 0.5})


def copied_learning_rate(program: Program) -> None:
    """After the step a new learning rate is computed, and copied to the device."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 12, {"copy": 0.02}, copies=1, copied=4)


def child_process(program: Program) -> None:
    """After the step a command runs. Its output of 100 bytes comes through a pipe."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 1, {"child": 14})


def output_of_a_command(program: Program) -> None:
    """After the step a command runs. It prints 2,000 bytes, and has ended when the program waits for its end."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 1, {"pipe": 14}, read=2_000, forks=1)


def report_with_its_template(program: Program) -> None:
    """After the step a report of 6,000 bytes is written, by a template of 20,000 bytes from a file."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 6, {"file": 4}, writes=4, read=20_000, written=6_000)


def values_of_keys(program: Program) -> None:
    """A batch of 12,700 bytes from a server, which is asked for 64 keys."""
    program.part(Position.LOAD, 0.2, {"socket": 12}, read=12_700, written=2_900)
    program.forward()
    program.learn()


def embeddings_of_texts(program: Program) -> None:
    """A batch of 98,000 bytes from a server, which gets 66,000 bytes of text."""
    program.part(Position.LOAD, 0.5, {"socket": 15}, read=98_000, written=66_000)
    program.forward()
    program.learn()


def objects_of_a_store(program: Program) -> None:
    """A batch of 32 objects of 5,000 bytes from a store. Each request is signed, and has 800 bytes."""
    program.part(Position.LOAD, 2, {"socket": 30}, read=32 * 5_400, written=32 * 800)
    program.forward()
    program.learn()


def record_for_a_token(program: Program) -> None:
    """A batch of 3,000 bytes from a server, which gets a token of 900 bytes."""
    program.part(Position.LOAD, 0.3, {"socket": 9}, read=3_400, written=900)
    program.forward()
    program.learn()


def batch_of_a_process_beside_a_command(program: Program) -> None:
    """A process makes batches. A command that prints nothing runs after each step."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.2, {"child": 1}, forks=1)
    program.part(Position.LOAD, 0.2, {"pipe": 12}, read=600)


def long_output_of_a_command(program: Program) -> None:
    """The same with 20,000 bytes, as of `ps aux`."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 1, {"pipe": 14}, read=20_000, forks=1)


def log_before_features(program: Program) -> None:
    """After the step a line is synchronized to the disk. Then a server sends 4,000 bytes."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.05, {"file": 12}, writes=12, written=100)
    program.part(Position.LOAD, 0.05, {"socket": 9}, read=4_000)


def log_before_files(program: Program) -> None:
    """After the step the program sleeps. Then it reads a batch from cached files."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.05, {"timer": 12})
    program.part(Position.LOAD, 3, read=900_000)


def sleep_in_the_pass(program: Program) -> None:
    """A layer sleeps."""
    program.forward({"timer": 15})
    program.learn()


def request_in_the_pass(program: Program) -> None:
    """A layer asks a server for an embedding."""
    program.forward({"socket": 15})
    program.learn()


def compiled_pass(program: Program) -> None:
    """Only the loss of the pass shows: its other operators are compiled."""
    program.part(Position.FORWARD, 6, compiled=12)
    with program.span("forward", 2, is_loss=True):
        program.part(Position.FORWARD, 0.1, operators=2)
    program.learn(9)


def environments_in_processes(program: Program) -> None:
    """A rollout. The environments answer through pipes."""
    for _ in range(6):
        with program.span("inference"):
            program.part(Position.INFERENCE, 0.5, operators=6)
        program.part(Position.ENVIRONMENT, 0.1, {"pipe": 4}, read=900)
    program.forward()
    program.learn()


def game_server(program: Program) -> None:
    """A rollout. The environment is a server, which answers with 500 bytes."""
    for _ in range(6):
        with program.span("inference"):
            program.part(Position.INFERENCE, 0.5, operators=6)
        program.part(Position.ENVIRONMENT, 0.1, {"socket": 4}, read=500)
    program.forward()
    program.learn()


def requests_in_the_dataset(program: Program) -> None:
    """The dataset of a DataLoader asks a server."""
    program.load({"socket": 12}, read=50_000)
    program.forward()
    program.learn()


def tokenizing_in_the_loop(program: Program) -> None:
    """The DataLoader gives text, and the loop looks up its tokens in Python."""
    program.load()
    program.part(Position.LOAD, 14)
    program.forward()
    program.learn()


def fetching_in_the_loop(program: Program) -> None:
    """The DataLoader gives names, and the loop gets the data from a server."""
    program.load()
    program.part(Position.LOAD, 0.2, {"socket": 14}, read=60_000)
    program.forward()
    program.learn()


def sleep_before_the_pass(program: Program) -> None:
    """With a DataLoader, the model's own code sleeps before its first operator."""
    program.load()
    program.part(Position.FORWARD, 0.1, {"timer": 14})
    program.forward()
    program.learn()


def http_log_with_a_loader(program: Program) -> None:
    """As `http_log`, with a DataLoader."""
    program.load()
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.4, {"socket": 11}, read=200)


def metric_and_fsync_with_a_loader(program: Program) -> None:
    """As `metric_and_fsync`, with a DataLoader."""
    program.load()
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 6, {"file": 9})


def full_pipe_with_a_loader(program: Program) -> None:
    """As `full_pipe`, with a DataLoader."""
    program.load()
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0.1, {"pipe": 14})


def sleep_in_the_pass_with_a_loader(program: Program) -> None:
    """As `sleep_in_the_pass`, with a DataLoader."""
    program.load()
    program.forward({"timer": 15})
    program.learn()


def workers(program: Program) -> None:
    """The DataLoader waits for its worker processes."""
    program.load({"pipe": 2, "lock": 9}, read=300)
    program.forward()
    program.learn()


def iterator_in_each_step(program: Program) -> None:
    """`next(iter(loader))`: the loop makes an iterator with workers for each batch, and waits for their end."""
    program.load({"pipe": 4}, read=300)
    program.part(Position.LOAD, 0.3, {"pipe": 9, "child": 0.5})
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 2)
    with program.span("batch", 1):
        program.part(Position.LOAD, 0.01)
    program.part(Position.LOAD, 12, {"child": 2}, forks=2)


def metric_without_gradients(program: Program) -> None:
    """An accuracy under `torch.no_grad` after the step, which adds to two sums."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 9, operators=3)
    with program.span("in_place", 2):
        program.part(Position.AFTER_STEP, 0.2, operators=2)


def metric_with_a_loader(program: Program) -> None:
    """The same, with a DataLoader."""
    program.load()
    metric_without_gradients(program)


def decision_at_random(program: Program) -> None:
    """A random number of PyTorch decides what a long step of a game does, after the optimizer."""
    program.forward()
    program.learn()
    with program.span("batch", 1):
        program.part(Position.AFTER_STEP, 0.002)
    program.part(Position.AFTER_STEP, 12)


def synthetic_batch(program: Program) -> None:
    """A batch of random vectors and classes, after a pause."""
    program.forward()
    program.learn()
    program.part(Position.AFTER_STEP, 0, {"timer": 5})
    with program.span("noise", 2):
        program.part(Position.LOAD, 3)
    program.part(Position.LOAD, 0.1)


def noise_after_a_loader(program: Program) -> None:
    """Diffusion: noise at random times is a part of the pass."""
    program.load()
    with program.span("noise", 2):
        program.part(Position.FORWARD, 1.5, compiled=2)
    program.part(Position.FORWARD, 1, compiled=2)
    program.forward()
    program.learn()


def averages_by_hand(program: Program) -> None:
    """An exponential average of the weights, by hand."""
    program.load()
    program.forward()
    program.learn()
    with program.span("in_place", 8):
        program.part(Position.AVERAGE, 2, operators=8)


PROGRAMS: tuple[Callable[[Program], None], ...] = (
    *(
        feature_server,
        small_features,
        parsed_features,
        values_of_keys,
        embeddings_of_texts,
        objects_of_a_store,
        cached_texts,
        few_texts,
        parsed_answer,
        files,
        files_beside_a_log,
        mapped_tokens,
        prefetching_thread,
        prefetching_process,
        prefetched_to_the_device,
    ),
    *(metric_without_gradients, metric_with_a_loader, decision_at_random, synthetic_batch, noise_after_a_loader),
    averages_by_hand,
    *(
        metric_in_python,
        metric_and_fsync,
        http_log,
        https_log,
        rows_of_a_table,
        full_pipe,
        sleeping_logger,
        flushing_logger,
    ),
    *(
        copied_learning_rate,
        child_process,
        output_of_a_command,
        long_output_of_a_command,
        log_before_files,
        log_before_features,
        sleep_in_the_pass,
        request_in_the_pass,
        compiled_pass,
    ),
    *(environments_in_processes, game_server, requests_in_the_dataset, tokenizing_in_the_loop, fetching_in_the_loop),
    *(sleep_before_the_pass, http_log_with_a_loader, metric_and_fsync_with_a_loader, full_pipe_with_a_loader),
    *(sleep_in_the_pass_with_a_loader, workers, iterator_in_each_step),
)
"""One step of each."""
LIMITS: tuple[Callable[[Program], None], ...] = (
    report_with_its_template,
    record_for_a_token,
    batch_of_a_process_beside_a_command,
)
"""Programs that look the same as others to every fact that is known. docs/phases.md lists them."""
