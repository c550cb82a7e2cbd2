"""A training loop on the CPU that records its own phases by CLOCK_MONOTONIC, to compare the phases processor with.

`python -m benchmarks.training.truth SCENARIO FOLDER` runs one of SCENARIOS once the file FOLDER/go exists. Each rank
writes FOLDER/truth.RANK.json: its `pid`, `loop` [start, end], `marks`, a list of [name, start, end], and `hidden`, the
time of collectives that overlapped other work. All times are in ns. Needs torch, and for a GPU the stand-in in FOLDER.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from itertools import islice, product
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.training.gpu import StandinGpu
from benchmarks.training.scenarios import SCENARIOS, Scenario

BATCH = 16
REPEAT = 8
"""Repetitions of the computation of a batch: loading and computing take about the same time."""
SAMPLE_S = 0.0013
FROM_WORKERS_S = 0.002
"""Seconds to make a sample: a step takes at least 30 ms, even if workers share one CPU."""
REBUILT = 2
"""The pass in which DDP agrees with the other ranks on its buckets."""
HELD_OUT = 4
"""Batches."""
STALL_S = 0.15
LATE_S = 0.02
now = time.monotonic_ns


class SlowSamples(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Samples that take `cost` s each. Every `stall_every`th batch takes STALL_S more."""

    def __init__(self, batches: int, cost: float, stall_every: int = 0) -> None:
        self._count = batches * BATCH
        self._cost = cost
        self._stall_every = stall_every * BATCH

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        end = now() + round(self._cost * 1e9)
        if self._stall_every and index % self._stall_every == self._stall_every - 1:
            time.sleep(STALL_S)
        while now() < end:
            pass
        return torch.randn(64), index % 10


class Truth:
    """The activities of the loop, with their times."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, int, int]] = []

    @contextmanager
    def mark(self, name: str) -> Iterator[None]:
        start = now()
        yield
        self.marks.append((name, start, now()))

    def loaded(self, loader: Iterable[list[torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
        """The batches of the loader. Waiting for them is `data`, the last request without a batch too."""
        batches = iter(loader)
        while True:
            start = now()
            try:
                batch = next(batches)
            except StopIteration:
                self.marks.append(("end of data", start, now()))
                return
            self.marks.append(("data", start, now()))
            yield batch


class RecordedLoop:
    """The training loop of one rank, and its true phases."""

    def __init__(self, scenario: Scenario, rank: int) -> None:
        torch.manual_seed(rank)
        self.scenario = scenario
        self.late = scenario.late_rank and rank == 1
        self.by_hand = scenario.ranks > 1 and not scenario.ddp
        self.passes = 0
        width = 1024 if scenario.ranks == 1 else 512
        layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        self.model: nn.Module = nn.Sequential(*layers)
        if scenario.ranks > 1 and scenario.ddp:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = getattr(torch.optim, scenario.optimizer)(self.model.parameters(), lr=1e-3)
        self.truth = Truth()
        cost = FROM_WORKERS_S if scenario.workers else SAMPLE_S
        samples = SlowSamples(scenario.steps, cost, scenario.stall_every)
        self.loader = DataLoader(samples, batch_size=BATCH, num_workers=scenario.workers, worker_init_fn=_stay_away)
        self.held_out = DataLoader(SlowSamples(HELD_OUT, SAMPLE_S / 2), batch_size=BATCH)

    def warm_up(self, go: Path) -> None:
        """Trains until the file `go` exists, so that the receiver finds the process."""
        while not go.exists():
            with torch.profiler.record_function("warm-up"):
                time.sleep(0.02)

    def run(self) -> dict[str, object]:
        """Trains, and returns the true phases."""
        number, begin = 0, now()
        for _ in range(self.scenario.epochs):
            for batch in self.truth.loaded(self.loader):
                number += 1
                self.learn(batch)
                if number % self.scenario.accumulate == 0:
                    self.update()
                if self.scenario.evaluate_every and number % self.scenario.evaluate_every == 0:
                    self.evaluate()
                if self.scenario.checkpoint_every and number % self.scenario.checkpoint_every == 0:
                    with self.truth.mark("checkpoint"):
                        torch.save(self.model.state_dict(), BytesIO())
        loop, marks = (begin, now()), self.truth.marks
        return {"pid": os.getpid(), "loop": loop, "marks": marks, "hidden": self.hidden_ns()}

    def hidden_ns(self) -> int:
        """Time of collectives that overlapped other work of the loop, in ns."""
        return 0

    def learn(self, batch: list[torch.Tensor]) -> None:
        """Forward and backward."""
        if self.late:
            with self.truth.mark("forward"):
                time.sleep(LATE_S)
        region = torch.profiler.record_function("my forward") if self.scenario.regions else nullcontext()
        inputs, targets = _repeated(batch)
        self.passes += 1
        agrees = self.scenario.ranks > 1 and self.scenario.ddp and self.passes == REBUILT
        with self.truth.mark("agreement" if agrees else "forward"), region:
            loss = nn.functional.cross_entropy(self.model(inputs), targets)
        with self.truth.mark("backward"):
            loss.backward()
        if self.by_hand:
            with self.truth.mark("collective"):
                for parameter in self.model.parameters():
                    torch.distributed.all_reduce(parameter.grad)

    def update(self) -> None:
        """Clipping, the optimizer, zero_grad."""
        if self.scenario.clip:
            with self.truth.mark("clip"):
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        with self.truth.mark("optimizer"):
            self.optimizer.step()
        with self.truth.mark("zero_grad"):
            self.optimizer.zero_grad()

    def evaluate(self) -> None:
        """A pass over the held-out samples."""
        with torch.no_grad():
            for batch in islice(self.truth.loaded(self.held_out), self.scenario.evaluate_batches):
                inputs, targets = _repeated(batch)
                with self.truth.mark("evaluate"):
                    nn.functional.cross_entropy(self.model(inputs), targets)


class GpuLoop(RecordedLoop):
    """A loop that also computes on a GPU, and reduces gradients during the backward pass, like DDP."""

    def __init__(self, scenario: Scenario, gpu: StandinGpu) -> None:
        super().__init__(scenario, 0)
        self.gpu = gpu
        layers = list(self.model.children())
        layers[-1].weight.register_post_accumulate_grad_hook(lambda _: self.reduce(ms=16))
        layers[0].weight.register_post_accumulate_grad_hook(lambda _: self.reduce(ms=4))

    def reduce(self, ms: float) -> None:
        """Continues the backward pass, and reduces the available gradients. The first are in flight until its end."""
        self.gpu.compute(kernels=20, ms=0.4)
        self.gpu.all_reduce(ms)

    def warm_up(self, go: Path) -> None:
        """Trains, and also waits and communicates."""
        while not go.exists():
            self.gpu.all_reduce(ms=2)
            self.gpu.wait()
            with torch.profiler.record_function("warm-up"):
                time.sleep(0.02)
        self.gpu.in_flight.clear()

    def learn(self, batch: list[torch.Tensor]) -> None:
        """Forward and backward."""
        with self.truth.mark("forward"):
            self.gpu.copy(ms=2)
            self.gpu.compute(kernels=30, ms=0.4)
            inputs, targets = _repeated(batch)
            loss = nn.functional.cross_entropy(self.model(inputs), targets)
        with self.truth.mark("wait"):
            self.gpu.wait_for_kernels()
        with self.truth.mark("backward"):
            loss.backward()
        with self.truth.mark("collective"):
            self.gpu.wait_for_collectives()
        with self.truth.mark("wait"):
            self.gpu.compute(kernels=10, ms=0.5)
            self.gpu.wait()

    def hidden_ns(self) -> int:
        """Total overlap with the collectives, which never overlap each other."""
        exposed = [(start, end) for name, start, end in self.truth.marks if name == "collective"]
        pairs = product(self.gpu.in_flight, exposed)
        visible = sum(max(0, min(end, until) - max(start, since)) for (start, end), (since, until) in pairs)
        return sum(end - start for start, end in self.gpu.in_flight) - visible


def _repeated(batch: list[torch.Tensor]) -> list[torch.Tensor]:
    return [part.repeat_interleave(REPEAT, 0) for part in batch]


def _stay_away(_: int) -> None:
    """Moves a worker to another CPU than the training process, to avoid preemption."""
    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {0})


def main(name: str, folder: Path) -> None:
    """Runs one scenario and writes its true phases."""
    scenario = SCENARIOS[name]
    torch.set_num_threads(1)
    if scenario.workers:
        os.sched_setaffinity(0, {0})
    if scenario.gpu:
        _run(GpuLoop(scenario, StandinGpu(folder)), 0, folder)
    elif scenario.ranks == 1:
        _run(RecordedLoop(scenario, 0), 0, folder)
    else:
        torch.multiprocessing.spawn(_rank, (scenario, folder), nprocs=scenario.ranks)


def _rank(rank: int, scenario: Scenario, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=scenario.ranks)
    _run(RecordedLoop(scenario, rank), rank, folder)
    torch.distributed.destroy_process_group()


def _run(loop: RecordedLoop, rank: int, folder: Path) -> None:
    loop.warm_up(folder / "go")
    (folder / f"truth.{rank}.json").write_text(json.dumps(loop.run()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
