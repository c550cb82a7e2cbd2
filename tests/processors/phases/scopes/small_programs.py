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
        gives: float = 0,
        before: float = 0,
        behind: float = 0,
        **counted: int,
    ) -> None:
        """Spends about these times on a CPU and in waits. Compiled operators are not counted. `writes` is the part of
        the waits in system calls that write, `gives` that for a lock by which the thread gets no batch. `before` is the
        part of the waits in code before the backward pass, 0 to 1, and `behind` the time of those for files, sockets
        and pipes in code after it."""
        scale = self.random.uniform(0.7, 1.5)
        waits = {name: time * scale for name, time in waits.items()}
        start = START + self.thread.snapshot.time
        writing, giving, after_backward = (round(part * scale * MS) for part in (writes, gives, behind))
        of_part = {"writing": writing, "giving": giving, "after_backward": after_backward, **counted}
        self.thread.spend(on_cpu * scale, waits, before=before, operators=operators, **of_part)
        computes = operators or compiled or position is Position.BACKWARD
        spent = {Activity.OPERATOR if computes else Activity.PYTHON: round(on_cpu * scale * MS)}
        spent |= {Activity(name): round(time * MS) for name, time in waits.items()}
        self.truth.append(Part(start, START + self.thread.snapshot.time, position, spent))

    @contextmanager
    def span(self, kind: str, count: int = 6, *, is_loss: bool = False, is_over: bool = False) -> Iterator[None]:
        """A span around parts. A run of operators has `count` operators. Its pass goes on unless it `is_over`."""
        begin = self.thread.snapshot
        yield
        operators = Operators(count, is_open=not is_over, is_loss=is_loss) if kind in _RUNS else None
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

    def train(self) -> None:
        """All that a step has besides its batch."""
        self.forward()
        self.learn()


Step = Callable[[Program], None]
"""One step of a program."""


def makes_batch(on_cpu: float, waits: Mapping[str, float] = _NOTHING, *, loads: bool = False, **counted: int) -> Step:
    """The loop makes a batch, from that of a DataLoader if it `loads`."""

    def step(program: Program) -> None:
        if loads:
            program.load()
        program.part(Position.LOAD, on_cpu, waits, **counted)
        program.train()

    return step


def after_step(
    on_cpu: float,
    waits: Mapping[str, float] = _NOTHING,
    *,
    loads: bool = False,
    writes: float = 0,
    gives: float = 0,
    behind: float = 0,
    **counted: int,
) -> Step:
    """The loop does something after its update. It has a DataLoader if it `loads`."""

    def step(program: Program) -> None:
        if loads:
            program.load()
        program.train()
        program.part(Position.AFTER_STEP, on_cpu, waits, writes=writes, gives=gives, behind=behind, **counted)

    return step


def in_loader(waits: Mapping[str, float], **counted: int) -> Step:
    """The loop waits in its DataLoader."""

    def step(program: Program) -> None:
        program.load(waits, **counted)
        program.train()

    return step


def in_pass(waits: Mapping[str, float], *, loads: bool = False) -> Step:
    """A layer waits. The loop has a DataLoader if it `loads`."""

    def step(program: Program) -> None:
        if loads:
            program.load()
        program.forward(waits)
        program.learn()

    return step


def rollout(waits: Mapping[str, float], read: int) -> Step:
    """The model acts six times before it learns, and waits for the answer of its environment."""

    def step(program: Program) -> None:
        for _ in range(6):
            with program.span("inference"):
                program.part(Position.INFERENCE, 0.5, operators=6)
            program.part(Position.ENVIRONMENT, 0.1, waits, read=read)
        program.train()

    return step


def environment_in_python(program: Program) -> None:
    """The model acts eight times before it learns. Its environment computes in Python."""
    for _ in range(8):
        with program.span("inference", is_over=True):
            program.part(Position.INFERENCE, 1, operators=6)
        program.part(Position.ENVIRONMENT, 0.8)
    program.train()


def replay_memory(program: Program) -> None:
    """The same. After the last step of the environment, Python samples a batch, for a pass of two models."""
    for _ in range(8):
        with program.span("inference", is_over=True):
            program.part(Position.INFERENCE, 1, operators=6)
        program.part(Position.ENVIRONMENT, 0.8)
    program.part(Position.LOAD, 3)
    with program.span("inference", is_over=True):
        program.part(Position.INFERENCE, 0.9, operators=6)
    program.train()


def batch_of_a_process_beside_a_command(program: Program) -> None:
    """A process makes batches. A command that prints nothing runs after each step."""
    program.train()
    program.part(Position.AFTER_STEP, 0.2, {"child": 1}, forks=1)
    program.part(Position.LOAD, 0.2, {"pipe": 12}, read=600)


def log_before_features(program: Program) -> None:
    """After the step a line is synchronized to the disk. Then a server sends 4,000 bytes."""
    program.train()
    program.part(Position.AFTER_STEP, 0.05, {"file": 12}, writes=12, written=100)
    program.part(Position.LOAD, 0.05, {"socket": 9}, read=4_000)


def full_queue_before_a_batch(program: Program) -> None:
    """The queue of a logger's thread is full after the step. Then a batch comes from another thread."""
    program.train()
    program.part(Position.AFTER_STEP, 0.05, {"lock": 11}, gives=11)
    program.part(Position.LOAD, 0.05, {"lock": 8})


def waits_on_both_sides(program: Program) -> None:
    """After the step a line is synchronized to the disk. The next step begins with a sleep, as of a simulator."""
    program.train()
    program.part(Position.AFTER_STEP, 0.02, {"file": 12}, writes=12, written=100)
    program.part(Position.LOAD, 0.02, {"timer": 9}, before=1)


def log_before_files(program: Program) -> None:
    """After the step the program sleeps. Then it reads a batch from cached files."""
    program.train()
    program.part(Position.AFTER_STEP, 0.05, {"timer": 12})
    program.part(Position.LOAD, 3, read=900_000)


def compiled_pass(program: Program) -> None:
    """Only the loss of the pass shows: its other operators are compiled."""
    program.part(Position.FORWARD, 6, compiled=12)
    with program.span("forward", 2, is_loss=True):
        program.part(Position.FORWARD, 0.1, operators=2)
    program.learn(9)


def sleep_before_the_pass(program: Program) -> None:
    """With a DataLoader, the model's own code sleeps before its first operator."""
    program.load()
    program.part(Position.FORWARD, 0.1, {"timer": 14})
    program.train()


def iterator_in_each_step(program: Program) -> None:
    """`next(iter(loader))`: the loop makes an iterator with workers for each batch, and waits for their end."""
    program.load({"pipe": 4}, read=300)
    program.part(Position.LOAD, 0.3, {"pipe": 9, "child": 0.5})
    program.train()
    program.part(Position.AFTER_STEP, 2)
    with program.span("batch", 1):
        program.part(Position.LOAD, 0.01)
    program.part(Position.LOAD, 12, {"child": 2}, forks=2)


def metric_without_gradients(program: Program) -> None:
    """An accuracy under `torch.no_grad` after the step, which adds to two sums."""
    program.train()
    program.part(Position.AFTER_STEP, 9, operators=3)
    with program.span("in_place", 2):
        program.part(Position.AFTER_STEP, 0.2, operators=2)


def metric_with_a_loader(program: Program) -> None:
    """The same, with a DataLoader."""
    program.load()
    metric_without_gradients(program)


def decision_at_random(program: Program) -> None:
    """A random number of PyTorch decides what a long step of a game does, after the optimizer."""
    program.train()
    with program.span("batch", 1):
        program.part(Position.AFTER_STEP, 0.002)
    program.part(Position.AFTER_STEP, 12)


def synthetic_batch(program: Program) -> None:
    """A batch of random vectors and classes, after a pause."""
    program.train()
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
    program.train()


def averages_by_hand(program: Program) -> None:
    """An exponential average of the weights, by hand."""
    program.load()
    program.train()
    with program.span("in_place", 8):
        program.part(Position.AVERAGE, 2, operators=8)


PROGRAMS: Mapping[str, Step] = {
    # A batch of 30,000 bytes from a server, which is asked for 60 rows.
    "feature_server": makes_batch(0.1, {"socket": 20}, read=30_000, written=1_200),
    # As `feature_server`, with 12,000 bytes.
    "small_features": makes_batch(0.1, {"socket": 20}, read=12_000, written=400),
    # A batch of 60,000 bytes from a server, which are parsed.
    "parsed_features": makes_batch(8, {"socket": 3}, read=60_000, written=900),
    # A batch of 12,700 bytes from a server, which is asked for 64 keys.
    "values_of_keys": makes_batch(0.2, {"socket": 12}, read=12_700, written=2_900),
    # A batch of 98,000 bytes from a server, which gets 66,000 bytes of text.
    "embeddings_of_texts": makes_batch(0.5, {"socket": 15}, read=98_000, written=66_000),
    # A batch of 32 objects of 5,000 bytes from a store. Each request is signed, and has 800 bytes.
    "objects_of_a_store": makes_batch(2, {"socket": 30}, read=32 * 5_400, written=32 * 800),
    # A batch of 32,000 bytes of cached files, whose tokens are looked up.
    "cached_texts": makes_batch(6, read=32_000),
    # A batch of 12,000 bytes of cached files, beside a line of progress.
    "few_texts": makes_batch(6, read=12_000, written=150),
    # A batch of 4,000 bytes from a server, which takes 4 ms to parse.
    "parsed_answer": makes_batch(4, {"socket": 9}, read=4_000, written=300),
    # A batch from files that are not cached.
    "files": makes_batch(0.5, {"file": 9}, read=120_000),
    # A batch of 120,000 bytes from files, and a line of 20,000 bytes in a log.
    "files_beside_a_log": makes_batch(0.5, {"file": 9}, read=120_000, written=20_000),
    # A batch from a memory map that is not cached.
    "mapped_tokens": makes_batch(0.4, {"fault": 6}, file_faults=40, major_faults=30),
    # A thread makes batches, and the training thread takes them from a queue.
    "prefetching_thread": makes_batch(0.05, {"lock": 15, "gil": 0.2}),
    # A process makes batches. The pipe of its queue has their names in shared memory.
    "prefetching_process": makes_batch(0.2, {"pipe": 12}, read=600),
    # A thread makes batches. The training thread converts them, and copies them to the device.
    "prefetched_to_the_device": makes_batch(2, {"lock": 9, "copy": 1}, copies=2, copied=400_000),
    "metric_without_gradients": metric_without_gradients,
    "metric_with_a_loader": metric_with_a_loader,
    "decision_at_random": decision_at_random,
    "synthetic_batch": synthetic_batch,
    "noise_after_a_loader": noise_after_a_loader,
    "averages_by_hand": averages_by_hand,
    # A metric is computed in Python.
    "metric_in_python": after_step(18),
    # A metric is computed in Python, and written to a file by fsync.
    "metric_and_fsync": after_step(6, {"file": 9}, writes=9, read=4096, written=2000),
    # A request sends the loss to a server, which answers with 1,200 bytes.
    "http_log": after_step(0.4, {"socket": 11}, read=1_200, written=500),
    # As `http_log`, over a new encrypted connection: 8,000 bytes are certificates.
    "https_log": after_step(2, {"socket": 25}, read=8_600, written=1_400),
    # A database changes four pages.
    "rows_of_a_table": after_step(3, {"file": 9}, writes=9, read=16_384, written=18_000),
    # A line is written to a pipe that is full. The line has the use of memory, from /proc.
    "full_pipe": after_step(0.1, {"pipe": 14}, writes=14, read=40, written=100),
    # The program sleeps.
    "sleeping_logger": after_step(0.1, {"timer": 14}),
    # A logger of another thread is flushed.
    "flushing_logger": after_step(1.2, {"lock": 16, "gil": 0.5}),
    # The queue of a logger's thread is full.
    "full_queue": after_step(0.1, {"lock": 14}, gives=14),
    "full_queue_before_a_batch": full_queue_before_a_batch,
    "waits_on_both_sides": waits_on_both_sides,
    # A batch of 3,000 bytes from a server, which gets a token of 900 bytes. Python frames show where the loop waits.
    "record_for_a_token_by_its_frames": makes_batch(0.3, {"socket": 9}, read=3_400, written=900, before=1),
    # A batch is computed in Python. Python frames show where.
    "batch_in_python": makes_batch(9, sampled_before=3),
    # The same in memory that was swapped.
    "batch_in_swapped_memory": makes_batch(4, {"swap": 9}, sampled_before=3),
    # The same, and other processes need the CPU.
    "batch_on_a_busy_machine": makes_batch(5, {"cpu_wait": 6}, sampled_before=3),
    # A peer sends 20,000 bytes after the step. Python frames show where the loop waits.
    "answer_of_a_peer_by_its_frames": after_step(0.1, {"socket": 14}, read=20_000, written=100, behind=14),
    # A report is made of a mapped file.
    "report_of_a_mapped_file_by_its_frames": after_step(
        3, {"fault": 9}, file_faults=40, major_faults=30, sampled_after=3
    ),
    # A report of 6,000 bytes is written, by a template of 20,000 bytes from a file.
    "report_with_its_template_by_its_frames": after_step(
        6, {"file": 4}, writes=4, read=20_000, written=6_000, sampled_after=3
    ),
    # A new learning rate is computed, and copied to the device.
    "copied_learning_rate": after_step(12, {"copy": 0.02}, copies=1, copied=4),
    # A command runs. Its output of 100 bytes comes through a pipe.
    "child_process": after_step(1, {"child": 14}),
    # A command runs. It prints 2,000 bytes, and has ended when the program waits for its end.
    "output_of_a_command": after_step(1, {"pipe": 14}, read=2_000, forks=1),
    # The same with 20,000 bytes, as of `ps aux`.
    "long_output_of_a_command": after_step(1, {"pipe": 14}, read=20_000, forks=1),
    "log_before_files": log_before_files,
    "log_before_features": log_before_features,
    # A layer sleeps.
    "sleep_in_the_pass": in_pass({"timer": 15}),
    # A layer asks a server for an embedding.
    "request_in_the_pass": in_pass({"socket": 15}),
    "compiled_pass": compiled_pass,
    # The environments answer through pipes.
    "environments_in_processes": rollout({"pipe": 4}, read=900),
    # The environment is a server, which answers with 500 bytes.
    "game_server": rollout({"socket": 4}, read=500),
    "environment_in_python": environment_in_python,
    "replay_memory": replay_memory,
    # The dataset of a DataLoader asks a server.
    "requests_in_the_dataset": in_loader({"socket": 12}, read=50_000),
    # The DataLoader gives text, and the loop looks up its tokens in Python.
    "tokenizing_in_the_loop": makes_batch(14, loads=True),
    # The DataLoader gives names, and the loop gets the data from a server.
    "fetching_in_the_loop": makes_batch(0.2, {"socket": 14}, read=60_000, loads=True),
    "sleep_before_the_pass": sleep_before_the_pass,
    "http_log_with_a_loader": after_step(0.4, {"socket": 11}, read=200, loads=True),
    "metric_and_fsync_with_a_loader": after_step(6, {"file": 9}, loads=True),
    "full_pipe_with_a_loader": after_step(0.1, {"pipe": 14}, loads=True),
    "sleep_in_the_pass_with_a_loader": in_pass({"timer": 15}, loads=True),
    # The DataLoader waits for its worker processes.
    "workers": in_loader({"pipe": 2, "lock": 9}, read=300),
    "iterator_in_each_step": iterator_in_each_step,
}
"""One step of each."""
LIMITS: Mapping[str, Step] = {
    # A report of 6,000 bytes is written, by a template of 20,000 bytes from a file.
    "report_with_its_template": after_step(6, {"file": 4}, writes=4, read=20_000, written=6_000),
    # A batch of 3,000 bytes from a server, which gets a token of 900 bytes.
    "record_for_a_token": makes_batch(0.3, {"socket": 9}, read=3_400, written=900),
    "batch_of_a_process_beside_a_command": batch_of_a_process_beside_a_command,
}
"""Programs that look the same as others to every fact that is known. docs/phases.md lists them."""
