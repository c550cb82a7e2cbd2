"""A training loop on the CPU that writes down its own phases, by CLOCK_MONOTONIC: the truth that phases are held to.

`python -m benchmarks._truth SCENARIO OUT.json` runs one of SCENARIOS. OUT.json then holds `loop` [start, end] and
`marks`, a list of [name, start, end], in ns; with several ranks each writes OUT.json.RANK. Needs torch.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks._scenarios import SCENARIOS, Scenario

BATCH = 16
REPEAT = 8
"""A batch is computed as if it were this many, so that loading and computing take about as long."""
now = time.monotonic_ns


STALL_S = 0.15
LATE_S = 0.02


class Samples(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Samples that take `cost` s each to make; each `stall_every`th batch takes STALL_S more."""

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
    """What the loop did, and when."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, int, int]] = []

    @contextmanager
    def mark(self, name: str) -> Iterator[None]:
        start = now()
        yield
        self.marks.append((name, start, now()))

    def loaded(self, loader: Iterable[list[torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
        """The loader's batches; waiting for them is `data`, and so is asking it once more at its end."""
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


class Loop:
    """One rank's training loop, and the truth about it."""

    def __init__(self, scenario: Scenario, rank: int) -> None:
        torch.manual_seed(rank)
        self.scenario = scenario
        self.late = scenario.late_rank and rank == 1
        self.by_hand = scenario.ranks > 1 and not scenario.ddp
        width = 1024 if scenario.ranks == 1 else 512
        layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        self.model: nn.Module = nn.Sequential(*layers)
        if scenario.ranks > 1 and scenario.ddp:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = getattr(torch.optim, scenario.optimizer)(self.model.parameters(), lr=1e-3)
        self.truth = Truth()
        samples = Samples(scenario.steps, 0.001, scenario.stall_every)
        self.loader = DataLoader(samples, batch_size=BATCH, num_workers=scenario.workers, worker_init_fn=_stay_away)
        self.held_out = DataLoader(Samples(3, 0.0005), batch_size=BATCH)

    def run(self) -> dict[str, object]:
        """Trains; returns the truth."""
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
        return {"pid": os.getpid(), "loop": (begin, now()), "marks": self.truth.marks}

    def learn(self, batch: list[torch.Tensor]) -> None:
        """Forward and backward."""
        if self.late:
            with self.truth.mark("forward"):
                time.sleep(LATE_S)
        region = torch.profiler.record_function("my forward") if self.scenario.regions else nullcontext()
        inputs, targets = _repeated(batch)
        with self.truth.mark("forward"), region:
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
            for batch in self.truth.loaded(self.held_out):
                inputs, targets = _repeated(batch)
                with self.truth.mark("evaluate"):
                    nn.functional.cross_entropy(self.model(inputs), targets)


def _repeated(batch: list[torch.Tensor]) -> list[torch.Tensor]:
    return [part.repeat_interleave(REPEAT, 0) for part in batch]


def _stay_away(_: int) -> None:
    """Keeps a worker off the training process's CPU: else what lies between the two clocks is preemption."""
    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {0})


def main(name: str, out: str) -> None:
    """Runs one scenario and writes its truth."""
    scenario = SCENARIOS[name]
    torch.set_num_threads(1)
    if scenario.ranks == 1:
        if scenario.workers:
            os.sched_setaffinity(0, {0})
        _write(out, Loop(scenario, 0).run())
        return
    torch.multiprocessing.spawn(_rank, (scenario, out), nprocs=scenario.ranks)


def _rank(rank: int, scenario: Scenario, out: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(scenario.ranks))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=scenario.ranks)
    _write(f"{out}.{rank}", Loop(scenario, rank).run())
    torch.distributed.destroy_process_group()


def _write(path: str, truth: dict[str, object]) -> None:
    Path(path).write_text(json.dumps(truth))


if __name__ == "__main__":
    main(*sys.argv[1:])
