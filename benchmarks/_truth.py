"""A training loop on the CPU that writes down its own phases, by CLOCK_MONOTONIC: the truth that phases are held to.

`python _truth.py SCENARIO OUT.json` runs one of SCENARIOS; OUT.json then holds `loop` [start, end] and `marks`, a list
of [name, start, end], in ns. With several ranks each writes OUT.json.RANK. Needs torch, and nothing of ours.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16
REPEAT = 8
"""A batch is computed as if it were this many, so that loading and computing take about as long."""
now = time.monotonic_ns


@dataclass(frozen=True)
class Scenario:
    """What a loop does besides training."""

    workers: int = 0
    optimizer: str = "AdamW"
    accumulate: int = 1
    clip: bool = False
    evaluate_every: int = 0
    checkpoint_every: int = 0
    epochs: int = 1
    regions: bool = False
    ranks: int = 1
    ddp: bool = True
    late_rank: bool = False
    stall_every: int = 0
    steps: int = 40


SCENARIOS = {
    "AdamW": Scenario(),
    "AdamW, 2 workers": Scenario(workers=2),
    "SGD": Scenario(optimizer="SGD"),
    "accumulation 4": Scenario(accumulate=4),
    "clipping": Scenario(clip=True),
    "evaluation every 10": Scenario(evaluate_every=10),
    "checkpoints every 10": Scenario(checkpoint_every=10),
    "4 epochs": Scenario(epochs=4, steps=12),
    "4 epochs, 2 workers": Scenario(epochs=4, steps=12, workers=2),
    "record_function": Scenario(regions=True),
    "stalls of 150 ms": Scenario(stall_every=10),
    "stalls of 150 ms, 2 workers": Scenario(stall_every=10, workers=2),
    "gloo, DDP": Scenario(ranks=2, steps=25),
    "gloo, DDP, a late rank": Scenario(ranks=2, late_rank=True, steps=25),
    "gloo, all_reduce by hand": Scenario(ranks=2, ddp=False, steps=25),
}
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


def train(scenario: Scenario, rank: int) -> dict[str, object]:
    """Runs the loop; returns the truth."""
    truth = Truth()
    torch.manual_seed(rank)
    width = 1024 if scenario.ranks == 1 else 512
    model: nn.Module = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    if scenario.ranks > 1 and scenario.ddp:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = getattr(torch.optim, scenario.optimizer)(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    samples = Samples(scenario.steps, 0.001, scenario.stall_every)
    held_out = DataLoader(Samples(3, 0.0005), batch_size=BATCH)
    loader = DataLoader(samples, batch_size=BATCH, num_workers=scenario.workers, worker_init_fn=_apart)
    number, begin = 0, now()
    for _ in range(scenario.epochs):
        for batch in truth.loaded(loader):
            number += 1
            inputs, targets = (part.repeat_interleave(REPEAT, 0) for part in batch)
            if scenario.late_rank and rank == 1:
                with truth.mark("forward"):
                    time.sleep(LATE_S)
            region = torch.profiler.record_function("my forward") if scenario.regions else nullcontext()
            with truth.mark("forward"), region:
                loss = loss_of(model(inputs), targets)
            with truth.mark("backward"):
                loss.backward()
            if scenario.ranks > 1 and not scenario.ddp:
                with truth.mark("collective"):
                    for parameter in model.parameters():
                        torch.distributed.all_reduce(parameter.grad)
            if number % scenario.accumulate == 0:
                if scenario.clip:
                    with truth.mark("clip"):
                        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                with truth.mark("optimizer"):
                    optimizer.step()
                with truth.mark("zero_grad"):
                    optimizer.zero_grad()
            if scenario.evaluate_every and number % scenario.evaluate_every == 0:
                model.eval()
                with torch.no_grad():
                    for inputs, targets in truth.loaded(held_out):
                        with truth.mark("evaluate"):
                            loss_of(model(inputs.repeat_interleave(REPEAT, 0)), targets.repeat_interleave(REPEAT, 0))
                model.train()
            if scenario.checkpoint_every and number % scenario.checkpoint_every == 0:
                with truth.mark("checkpoint"):
                    torch.save(model.state_dict(), BytesIO())
    return {"pid": os.getpid(), "loop": (begin, now()), "marks": truth.marks}


def _apart(_: int) -> None:
    """Workers stay away from the training process's CPU: what the two clocks would see between them is preemption."""
    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {0})


def main(name: str, out: str) -> None:
    """Runs one scenario and writes its truth."""
    scenario = SCENARIOS[name]
    torch.set_num_threads(1)
    if scenario.ranks == 1:
        if scenario.workers:
            os.sched_setaffinity(0, {0})
        _write(out, train(scenario, 0))
        return
    torch.multiprocessing.spawn(_rank, (scenario, out), nprocs=scenario.ranks)


def _rank(rank: int, scenario: Scenario, out: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(scenario.ranks))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=scenario.ranks)
    _write(f"{out}.{rank}", train(scenario, rank))
    torch.distributed.destroy_process_group()


def _write(path: str, truth: dict[str, object]) -> None:
    Path(path).write_text(json.dumps(truth))


if __name__ == "__main__":
    main(*sys.argv[1:])
