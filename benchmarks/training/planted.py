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
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, WIDTH = 64, 768
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
        self.batches = 200
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


CAUSES: dict[str, tuple[str, object]] = {
    "tokenizer in the loop": ("before_forward", lambda: spin(0.012)),
    "collate in the main process": ("collate", lambda: spin(0.010)),
    "sleep in the forward pass": ("in_forward", lambda: time.sleep(0.010)),
    "metric before the backward pass": ("before_backward", lambda: spin(0.008)),
    "metric after the step": ("after_step", lambda: spin(0.009)),
    "sleep after the step": ("after_step", lambda: time.sleep(0.012)),
    "file written after the step": ("after_step", write_and_sync),
    "checkpoint every 20 steps": ("after_step", every(20, lambda: write_and_sync(64 << 20))),
    "garbage collector every 25 steps": ("after_step", every(25, lambda: spin(0.2))),
    "samples that sleep": ("sample", lambda: time.sleep(0.0002)),
    "first batch of an epoch": ("each_epoch", lambda: time.sleep(0.4)),
    "growing list": ("after_step", growing()),
}
"""By name: the place, and the work there."""


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
    model = Model(places)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for values, labels in batches(places):
        places.before_forward()
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(values), labels) if _ == 2 else model.layers(values).sum() * 0
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
    places = Places()
    if cause != "nothing":
        place, work = CAUSES[cause]
        setattr(places, place, work)
    running = steps(places)
    while not (folder / "go").exists():
        next(running)
    loop = [next(running) for _ in range(count)]
    (folder / "truth.0.json").write_text(json.dumps({"pid": os.getpid(), "loop": loop, "marks": []}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
