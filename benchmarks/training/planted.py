"""A training loop on the CPU with one planted cause that makes it slower, or without it.

`python -m benchmarks.training.planted CAUSE STEPS FOLDER` takes so many steps once the file FOLDER/go exists. Each rank
writes FOLDER/truth.RANK.json: its `pid`, and `loop`, the ends of its steps. All times are in ns. `CAUSE` is one of
CAUSES, or `nothing`. Needs torch.
"""

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, WIDTH = 256, 1024
now = time.monotonic_ns


class Samples(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    def __init__(self, count: int, prepare: Callable[[], None]) -> None:
        self._count = count
        self._prepare = prepare

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self._prepare()
        return torch.full((64,), float(index)), index % 10


def spin(seconds: float) -> None:
    """Runs Python for so long, by the time of the CPU."""
    end = time.thread_time() + seconds
    words: dict[str, int] = {}
    while time.thread_time() < end:
        for word in ("the", "quick", "brown", "fox", "jumps", "over"):
            words[word] = words.get(word, 0) + 1


def nothing() -> None:
    pass


class Places:
    """What the loop does beside training, by place. A planted cause replaces one of them."""

    def __init__(self) -> None:
        self.sample = self.collate = self.before_forward = self.in_forward = nothing
        self.before_backward = self.before_step = self.after_step = nothing
        self.each_epoch = nothing
        self.workers = 0
        self.persistent = False
        self.batches = 50
        """Batches of an epoch."""


def every(steps: int, work: Callable[[], None]) -> Callable[[], None]:
    counted = iter(range(10**9))
    return lambda: work() if next(counted) % steps == steps - 1 else None


def write_and_sync(size: int = 1 << 20) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())


def growing() -> Callable[[], None]:
    kept: list[int] = []

    def work() -> None:
        kept.extend(range(2_000))
        sum(kept)

    return work


CAUSES: dict[str, tuple[str, Callable[[], object], int | None]] = {
    "tokenizer in the loop": ("before_forward", lambda: spin(0.012), None),
    "collate in the main process": ("collate", lambda: spin(0.010), None),
    "sleep in the forward pass": ("in_forward", lambda: time.sleep(0.010), None),
    "metric before the backward pass": ("before_backward", lambda: spin(0.008), None),
    "metric after the step": ("after_step", lambda: spin(0.009), None),
    "sleep after the step": ("after_step", lambda: time.sleep(0.012), None),
    "file written after the step": ("after_step", write_and_sync, None),
    "write every 20 steps": ("after_step", every(20, lambda: write_and_sync(64 << 20)), None),
    "Python every 25 steps": ("after_step", every(25, lambda: spin(0.2)), None),
    "samples that sleep": ("sample", lambda: time.sleep(0.0002), None),
    "first batch of an epoch": ("each_epoch", lambda: time.sleep(0.4), None),
    "growing list": ("after_step", growing(), None),
    "sleep on rank 1": ("in_forward", lambda: time.sleep(0.015), 1),
    "Python on rank 1": ("before_forward", lambda: spin(0.012), 1),
}
"""By name: the place, the work there, and the rank that does it (None: all)."""


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, places: Places) -> None:
        super().__init__()
        layers = [nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)]
        self.layers = nn.Sequential(*layers)
        self._places = places

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.layers[:2](batch)
        self._places.in_forward()
        return self.layers[2:](hidden)


def batches(places: Places) -> Iterable[list[torch.Tensor]]:
    """Epochs without an end."""

    def collate(samples: list[tuple[torch.Tensor, int]]) -> list[torch.Tensor]:
        places.collate()
        values, labels = zip(*samples, strict=True)
        return [torch.stack(values), torch.tensor(labels)]

    data = Samples(BATCH * places.batches, places.sample)
    loader = DataLoader(
        data, BATCH, collate_fn=collate, num_workers=places.workers, persistent_workers=places.persistent
    )
    while True:
        places.each_epoch()
        yield from loader


def steps(places: Places) -> Iterator[int]:
    """Trains; yields the end of each step (ns)."""
    torch.manual_seed(0)
    model: nn.Module = Model(places)
    if dist.is_initialized():
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for values, labels in batches(places):
        places.before_forward()
        loss = nn.functional.cross_entropy(model(values), labels)
        places.before_backward()
        loss.backward()
        places.before_step()
        optimizer.step()
        optimizer.zero_grad()
        places.after_step()
        yield now()


def main(cause: str, count: int, folder: Path) -> None:
    torch.set_num_threads(1)
    gc.disable()
    rank = int(os.environ.get("RANK", "0"))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    places = Places()
    if cause != "nothing":
        place, work, on_rank = CAUSES[cause]
        if on_rank in (None, rank):
            setattr(places, place, work)
    running = steps(places)
    while True:
        next(running)
        go = torch.tensor(float((folder / "go").exists()))
        if dist.is_initialized():
            dist.broadcast(go, 0)
        if go:
            break
    loop = [next(running) for _ in range(count)]
    truth = {"pid": os.getpid(), "loop": loop, "marks": [], "rank": rank}
    (folder / f"truth.{rank}.json").write_text(json.dumps(truth))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
