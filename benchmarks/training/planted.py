"""A training loop on the CPU, with planted causes that make it slower, and without them.

`python -m benchmarks.training.planted NAME STEPS FOLDER`: NAME is one of CAUSES, two of them with ` and ` between, or
one of HEALTHY. Once the file FOLDER/go exists, the loop takes STEPS with all causes. Then, for each cause, it takes
pairs of blocks of steps, one with all causes and one without this one. Each rank writes FOLDER/truth.RANK.json: its
`pid`, `loop` (the ends of its steps with all causes, ns), and `gains` (by cause, and for each of its pairs: by which
part a step is shorter without it). Needs torch.
"""

import contextlib
import copy
import gc
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

BATCH, WIDTH, FEATURES, CLASSES = 2_304, 512, 64, 10
AND = " and "
SETTLING = 0.2
"""The part of the steps after a change that does not count."""
BLOCK, PAIRED = 20, 160
"""Steps of a block, at least, and of all blocks with a cause, about. Steps are compared with their neighbours, for the
speed of a machine drifts by some percent within seconds."""
now = time.monotonic_ns


class Training:
    """The model, and what it is trained with."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.places = Places()
        self.model: nn.Module = Model(self)
        self.average = copy.deepcopy(self.model.layers)
        if dist.is_initialized():
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.steps = 0
        self.loss = torch.zeros(())
        self.kept: list[Any] = []
        self.latest: deque[Any] = deque(maxlen=40)
        self.graph: torch.Tensor | float = 0.0


Work = Callable[[Training], None]


def nothing(training: Training) -> None:
    pass


@dataclass(frozen=True)
class Places:
    """What the loop does beside training, by place, and how it loads its data."""

    before_forward: Work = nothing
    in_forward: Work = nothing
    before_backward: Work = nothing
    before_step: Work = nothing
    after_step: Work = nothing
    sample: Callable[[], None] = lambda: None
    collate: Callable[[], None] = lambda: None
    order: Callable[[], None] = lambda: None
    """When an epoch begins."""
    workers: int = 0
    persistent: bool = True
    iterator_per_step: bool = False
    is_by_sample: bool = False
    """Whether it takes samples one by one."""
    pieces: int = 0
    """The tensors of a batch that workers return; 0 for one of each kind."""
    fills: Callable[[], None] = lambda: None
    """What the dataset does before the first batch of an epoch."""
    is_anomaly: bool = False
    """Whether autograd looks for anomalies."""
    batches: int = 50
    """Of an epoch."""
    accumulate: int = 1
    syncs_all: bool = False
    """Whether ranks exchange gradients in all backward passes."""
    collects_garbage: bool = False


def count_words(seconds: float, *_: Training) -> None:
    """Runs Python for so long, by the time of the CPU."""
    end = time.thread_time() + seconds
    words: dict[str, int] = {}
    while time.thread_time() < end:
        for word in ("the", "quick", "brown", "fox", "jumps", "over"):
            words[word] = words.get(word, 0) + 1


def sleep(seconds: float, *_: Training) -> None:
    time.sleep(seconds)


def every(steps: int, work: Work) -> Work:
    return lambda training: work(training) if training.steps % steps == steps - 1 else None


def on_rank(rank: int, work: Work) -> Work:
    return lambda training: work(training) if os.environ.get("RANK", "0") == str(rank) else None


def in_turns(work: Work) -> Work:
    return lambda training: work(training) if training.steps % 2 == int(os.environ.get("RANK", "0")) else None


def write_and_sync(size: int, *_: Training) -> None:
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())


def save(training: Training) -> None:
    if not training.kept:
        training.kept = [torch.zeros(2_000_000) for _ in range(12)]
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        torch.save({"model": training.model.state_dict(), "more": training.kept}, file)


def collector_of(server_s: float) -> Work:
    """Sends metrics to a server that answers after so long."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        while theirs.recv(65_536):
            time.sleep(server_s)
            theirs.send(b"ok")

    threading.Thread(target=serve, daemon=True).start()

    def work(training: Training) -> None:
        ours.send(b"x" * 500)
        ours.recv(100)

    return work


def database() -> Work:
    folder = tempfile.mkdtemp(dir="/var/tmp")
    connection = sqlite3.connect(f"{folder}/metrics.db")
    connection.execute("create table metrics (step, loss)")

    def work(training: Training) -> None:
        for at in range(10):
            connection.execute("insert into metrics values (?, ?)", (training.steps, at))
            connection.commit()

    return work


def evaluate(batches: int, training: Training) -> None:
    training.model.eval()
    model = getattr(training.model, "module", training.model)  # one rank alone
    with torch.no_grad():
        loader = DataLoader(Samples(BATCH * batches, lambda: None), BATCH, collate_fn=lambda samples: samples)
        for number, (values, _) in enumerate(loader):
            model(values)
            if number == batches - 1:
                break
    training.model.train()


def average(training: Training) -> None:
    model = getattr(training.model, "module", training.model)
    with torch.no_grad():
        for _ in range(60):
            for ours, theirs in zip(training.average.parameters(), model.layers.parameters(), strict=True):
                ours.mul_(0.99).add_(theirs, alpha=0.01)


def grow_list(training: Training) -> None:
    training.kept.extend(range(5_000))
    sum(training.kept)


def sum_graph(keeps: bool, training: Training) -> None:
    """Keeps a sum with the graph of every step, and walks all of them in each backward pass; or of this step only."""
    if not training.kept:
        training.kept.append(torch.zeros((), requires_grad=True))
    if not keeps:
        training.graph = 0.0
    for _ in range(20):
        training.graph = training.graph + training.kept[0] * 0.0


def allocate(training: Training) -> None:
    """Makes objects that live for some steps, in a program that has many."""
    if not training.kept:
        training.kept = [[number, {"at": number}] for number in range(500_000)]
    training.latest.append([[number] for number in range(20_000)])


def small_reductions(training: Training) -> None:
    value = torch.ones(1)
    for _ in range(40):
        dist.all_reduce(value)


def norms(training: Training) -> None:
    for _ in range(10):
        [parameter.grad.norm().item() for parameter in training.model.parameters()]


def check(training: Training) -> None:
    """Looks for numbers that are not finite, in one gradient after the other."""
    for _ in range(40):
        assert not any(torch.isnan(parameter.grad).any() for parameter in training.model.parameters())


def multiply(times: int, *training: Training) -> None:
    """Runs operators."""
    values = torch.ones(512, 512)
    for _ in range(times):
        values = values @ values * 1e-3


def collect(training: Training) -> None:
    """Runs the garbage collector, in a program that has many objects."""
    if not training.kept:
        training.kept = [[number] for number in range(20_000)]
    gc.collect()


def run_command(*_: Training) -> None:
    subprocess.run(["sh", "-c", "sleep 0.01; echo 12"], capture_output=True, check=True)


def histograms(training: Training) -> None:
    for _ in range(4):
        for parameter in training.model.parameters():
            numpy.histogram(parameter.detach().numpy(), bins=64)


def copy_state(training: Training) -> None:
    for _ in range(20):
        copy.deepcopy(training.model.state_dict())


def few_collectives(*training: Training) -> None:
    values = [torch.zeros(1) for _ in range(dist.get_world_size())]
    for _ in range(8):
        dist.all_gather(values, torch.ones(1))


def gather_objects(*_: Training) -> None:
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, {f"metric {number}": float(number) for number in range(40_000)})


def slow_reader() -> Work:
    """Writes a log to a program that reads it slowly."""
    program = "import sys, time\nwhile sys.stdin.buffer.read1(4_096): time.sleep(0.08)"
    reader = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)

    def work(training: Training) -> None:
        assert reader.stdin
        reader.stdin.write(b"x" * 4_096)
        reader.stdin.flush()

    return work


class ManyParameters:
    """Takes a step of an optimizer with many small parameters."""

    def __init__(self, **options: bool) -> None:
        self._options = options
        self._optimizer: torch.optim.Optimizer | None = None

    def __call__(self, training: Training) -> None:
        if self._optimizer is None:
            parameters = [torch.zeros(32, 32, requires_grad=True) for _ in range(400)]
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            self._optimizer = torch.optim.AdamW(parameters, **self._options)
        self._optimizer.step()


class Lock:
    """Another thread that runs Python."""

    def __init__(self) -> None:
        self._runs = threading.Event()
        threading.Thread(target=self._spin, daemon=True).start()

    def _spin(self) -> None:
        while True:
            self._runs.wait()
            count_words(0.02)
            self._runs.clear()

    def __call__(self, training: Training) -> None:
        self._runs.set()


Change = dict[str, Any]
CAUSES: Mapping[str, Callable[[], Change]] = {
    "tokenizer in the loop": lambda: {"before_forward": partial(count_words, 0.012)},
    "collate in the main process": lambda: {"collate": partial(count_words, 0.010)},
    "samples that sleep": lambda: {"sample": partial(sleep, 0.010)},
    "sleep in the forward pass": lambda: {"in_forward": partial(sleep, 0.010)},
    "Python in the forward pass": lambda: {"in_forward": partial(count_words, 0.010)},
    "metric before the backward pass": lambda: {"before_backward": partial(count_words, 0.008)},
    "metric after the step": lambda: {"after_step": partial(count_words, 0.009)},
    "sleep after the step": lambda: {"after_step": partial(sleep, 0.012)},
    "file written after the step": lambda: {"after_step": partial(write_and_sync, 1 << 20)},
    "log sent after the step": lambda: {"after_step": collector_of(0.012)},
    "database after the step": lambda: {"after_step": database()},
    "norms of gradients": lambda: {"before_step": norms},
    "gradients checked for NaN": lambda: {"before_step": check},
    "write every 20 steps": lambda: {"after_step": every(20, partial(write_and_sync, 64 << 20))},
    "Python every 25 steps": lambda: {"after_step": every(25, partial(count_words, 0.2))},
    "checkpoint every 20 steps": lambda: {"after_step": every(20, save)},
    "evaluation every 50 steps": lambda: {"after_step": every(50, partial(evaluate, 60))},
    "garbage collection": lambda: {"collects_garbage": True},
    "average of the weights": lambda: {"after_step": average},
    "growing list": lambda: {"after_step": grow_list},
    "growing graph": lambda: {"before_backward": partial(sum_graph, True)},
    "first batch of an epoch": lambda: {"order": partial(time.sleep, 0.4), "batches": 25},
    "workers restarted": lambda: {"persistent": False},
    "iterator per step": lambda: {"iterator_per_step": True, "persistent": False},
    "another Python thread": lambda: {"in_forward": Lock()},
    "sleep on rank 1": lambda: {"in_forward": on_rank(1, partial(sleep, 0.015))},
    "Python on rank 1": lambda: {"before_forward": on_rank(1, partial(count_words, 0.012))},
    "ranks late in turns": lambda: {"in_forward": in_turns(partial(multiply, 12))},
    "gradients exchanged while they accumulate": lambda: {"syncs_all": True},
    "small collectives": lambda: {"after_step": small_reductions},
    "garbage collected in each step": lambda: {"after_step": collect},
    "command in each step": lambda: {"after_step": run_command},
    "histograms of the weights": lambda: {"after_step": histograms},
    "copy of the state": lambda: {"after_step": copy_state},
    "log to a slow reader": lambda: {"after_step": slow_reader()},
    "samples taken one by one": lambda: {"is_by_sample": True},
    "many tensors of a batch": lambda: {"pieces": 768},
    "shuffle buffer of workers that stay": lambda: {"fills": partial(time.sleep, 0.5)},
    "anomaly mode": lambda: {"is_anomaly": True},
    "many small parameters": lambda: {"before_step": ManyParameters(fused=False)},
    "log on rank 0 every 10 steps": lambda: {"after_step": on_rank(0, every(10, partial(count_words, 0.15)))},
    "few collectives": lambda: {"after_step": few_collectives},
    "objects gathered in each step": lambda: {"after_step": gather_objects},
    "evaluation on rank 0": lambda: {"after_step": on_rank(0, every(50, partial(evaluate, 60)))},
    "checkpoint on rank 0": lambda: {"after_step": on_rank(0, every(20, save))},
}
"""By name: what it changes in `Places`."""
HEALTHY: Mapping[str, Change] = {
    "nothing": {},
    "nothing, with workers": {"workers": 2},
    "nothing, on 2 ranks": {},
    "nothing, accumulating": {"accumulate": 4},
    "nothing, clipping": {
        "before_step": lambda training: nn.utils.clip_grad_norm_(training.model.parameters(), 1.0),
    },
}
PERIODS: Mapping[str, int] = {
    "write every 20 steps": 20,
    "Python every 25 steps": 25,
    "checkpoint every 20 steps": 20,
    "evaluation every 50 steps": 50,
    "garbage collection": 40,
    "first batch of an epoch": 25,
    "workers restarted": 12,
    "gradients exchanged while they accumulate": 8,
    "ranks late in turns": 2,
    "evaluation on rank 0": 50,
    "checkpoint on rank 0": 20,
    "log on rank 0 every 10 steps": 10,
    "shuffle buffer of workers that stay": 25,
}
"""The steps after which a cause comes again: a block has all of its parts."""
ALWAYS: Mapping[str, Change] = {
    "first batch of an epoch": {"batches": 25},
    "garbage collection": {"after_step": allocate},
    "growing graph": {"before_backward": partial(sum_graph, False)},
    "workers restarted": {"workers": 2, "batches": 12},
    "iterator per step": {"workers": 2},
    "many tensors of a batch": {"workers": 2},
    "shuffle buffer of workers that stay": {"workers": 1, "batches": 25},
    "many small parameters": {"before_step": ManyParameters(fused=True)},
    "ranks late in turns": {"in_forward": partial(multiply, 6)},
    "gradients exchanged while they accumulate": {"accumulate": 8},
}
"""What is so with and without a cause."""


class Samples(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    def __init__(self, count: int, prepare: Callable[[], None], begin: Callable[[], None] = lambda: None) -> None:
        self._prepare, self._begin = prepare, begin
        self.values = torch.rand(count, FEATURES)
        self.labels = torch.arange(count) % CLASSES

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        if indices[0] == 0:
            self._begin()
        self._prepare()
        return self.values[indices[0] : indices[-1] + 1], self.labels[indices[0] : indices[-1] + 1]


class Order(Sampler):  # type: ignore[misc]
    def __init__(self, places: Places) -> None:
        self._places = places

    def __len__(self) -> int:
        return BATCH * self._places.batches

    def __iter__(self) -> Iterator[int]:
        self._places.order()
        return iter(range(len(self)))


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, training: Training) -> None:
        super().__init__()
        layers = [nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)]
        self.layers = nn.Sequential(*layers)
        self._training = [training]  # a list: the model does not own it

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.layers[:2](batch)
        if self.training:
            self._training[0].places.in_forward(self._training[0])
        return self.layers[2:](hidden)


def batches(places: Places) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Epochs without an end."""

    def collate(samples: tuple[Any, torch.Tensor]) -> tuple[Any, torch.Tensor]:
        places.collate()
        return (samples[0].chunk(places.pieces), samples[1]) if places.pieces else samples

    data: Any = Samples(BATCH * places.batches, places.sample, places.fills)
    if places.is_by_sample:
        data = TensorDataset(data.values, data.labels)
    keeps = places.persistent and places.workers > 0
    loader = DataLoader(
        data,
        BATCH,
        sampler=Order(places),
        collate_fn=None if places.is_by_sample else collate,
        num_workers=places.workers,
        persistent_workers=keeps,
    )
    while True:
        if places.iterator_per_step:
            yield next(iter(loader))
        else:
            yield from loader


def steps(training: Training, places: Places) -> Iterator[int]:
    """Trains; yields the end of each step (ns)."""
    training.places, training.graph = places, 0.0
    training.kept, training.latest = [], deque(maxlen=40)
    (gc.enable if places.collects_garbage else gc.disable)()
    torch.autograd.set_detect_anomaly(places.is_anomaly)
    for values, labels in batches(places):
        values = torch.cat(values) if places.pieces else values
        places.before_forward(training)
        updates = training.steps % places.accumulate == places.accumulate - 1
        syncs = updates or places.syncs_all or not dist.is_initialized()
        with contextlib.nullcontext() if syncs else training.model.no_sync():
            training.loss = nn.functional.cross_entropy(training.model(values), labels)
            places.before_backward(training)
            (training.loss + training.graph).backward(retain_graph=isinstance(training.graph, torch.Tensor))
        if updates:
            places.before_step(training)
            training.optimizer.step()
            training.optimizer.zero_grad()
        places.after_step(training)
        training.steps += 1
        yield now()


def ends_of(training: Training, places: Places, count: int, settling: float = SETTLING) -> list[int]:
    """When each of so many steps ended (ns). The first ones do not count."""
    running, before = steps(training, places), math.ceil(settling * count)
    return [next(running) for _ in range(before + count + 1)][before:]


def mean_step(ends: list[int]) -> float:
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def gains(training: Training, whole: Places, left: Places, block: int) -> list[float]:
    """By which part a step is shorter with the places that are `left` than with the `whole`, for each pair."""
    measured = []
    for pair in range(max(PAIRED // block, 4)):
        # each comes first as often, so that a steady drift cancels
        order = (whole, left) if pair % 2 else (left, whole)
        took = {id(places): mean_step(ends_of(training, places, block)) for places in order}
        measured.append(1 - took[id(left)] / took[id(whole)])
    return measured


def begin() -> Training:
    """The model of this process, with the other ranks of its launcher."""
    torch.set_num_threads(1)
    gc.disable()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    return Training()


def places_of(name: str) -> Callable[[str], Places]:
    """The loop of this name without one of its causes. No cause has the name "": that is the loop with all of them."""
    causes = _causes(name)
    common = HEALTHY.get(name) or {key: value for cause in causes for key, value in ALWAYS.get(cause, {}).items()}
    changes = {cause: CAUSES[cause]() for cause in causes}

    def without(left_out: str) -> Places:
        planted = [change for cause, change in changes.items() if cause != left_out]
        return replace(Places(**common), **{key: value for change in planted for key, value in change.items()})

    return without


def block_of(name: str) -> int:
    """The steps of a block, which has all parts of each cause."""
    period = math.lcm(*(PERIODS.get(cause, 1) for cause in _causes(name)))
    return period * math.ceil(BLOCK / period)


def _causes(name: str) -> list[str]:
    return [] if name in HEALTHY else name.split(AND)


def main(name: str, count: int, folder: Path) -> None:
    training, without, causes = begin(), places_of(name), _causes(name)
    warming = steps(training, without([*causes, ""][0]))
    while True:
        next(warming)
        go = torch.tensor(float((folder / "go").exists()))
        if dist.is_initialized():
            dist.broadcast(go, 0)
        if go:
            break
    if "growing" in name:  # what grows is compared from its begin
        before = ends_of(training, without(name), count // 4)
        loop = ends_of(training, without(""), count, settling=0.0)
        after = ends_of(training, without(name), count // 4)
        gained = {name: [1 - mean_step(ends) / mean_step(loop) for ends in (before, after)]}
    else:
        loop = ends_of(training, without(""), count)
        whole, block = without(""), block_of(name)
        gained = {cause: gains(training, whole, without(cause), block) for cause in causes or [name]}
    rank = int(os.environ.get("RANK", "0"))
    truth = {"pid": os.getpid(), "loop": loop, "marks": [], "rank": rank, "gains": gained}
    (folder / f"truth.{rank}.json").write_text(json.dumps(truth))
    os._exit(0)  # workers and daemons need no end


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
