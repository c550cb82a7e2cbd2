"""Loops that get their batches, or some of them, without PyTorch's DataLoader."""

import gc
import io
import queue as queues
import tarfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.gpt import BLOCK, VOCABULARY, Gpt
from tests.frameworks.jobs.models.small import BATCH, STEPS, WIDTH, layers, random_batch
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.slowness import busy

TOKENS = 20_000_000
ROWS = 6
EVALUATE_EVERY = 20
EVALUATIONS = 5


class _Tokens:
    """Rows at random from a file of tokens, as nanoGPT takes them."""

    def __init__(self, run: TorchRun) -> None:
        self.run, self.path = run, Path(run.truth.folder) / "train.bin"
        np.random.default_rng(0).integers(0, VOCABULARY, TOKENS, np.uint16).tofile(self.path)

    def get_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs, and the tokens that follow them."""
        with self.run.truth.region("data"):
            self.run.delay("loader", self._read_more)
            data = np.memmap(self.path, dtype=np.uint16, mode="r")
            rows = torch.randint(len(data) - BLOCK, (ROWS,)).tolist()
            inputs, targets = (torch.stack([_row(data, row + shift) for row in rows]) for shift in (0, 1))
            return inputs, targets

    def _read_more(self, seconds: float) -> None:
        data = np.memmap(self.path, dtype=np.uint16, mode="r")
        busy(seconds / 2)
        int(data[::2048].sum())
        busy(seconds / 2)


def _row(data: Any, start: int) -> torch.Tensor:
    return torch.from_numpy(data[start : start + BLOCK].astype(np.int64))


def nanogpt(run: TorchRun) -> None:
    """nanoGPT's loop: `get_batch` of a memory map after the forward pass, clipping, an evaluation now and then."""
    tokens, model = _Tokens(run), Gpt()
    run.watch_model(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.get_ready()
    with run.truth.loop():
        inputs, targets = tokens.get_batch()
        for number in range(STEPS):
            if number % EVALUATE_EVERY == 0:
                _estimate_loss(tokens, model)
            loss = model(inputs, targets)
            inputs, targets = tokens.get_batch()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            run.truth.stepped()


@torch.no_grad()
def _estimate_loss(tokens: _Tokens, model: nn.Module) -> None:
    model.eval()
    for _ in range(EVALUATIONS):
        model(*tokens.get_batch()).item()
    model.train()


def queue(run: TorchRun) -> None:
    """A thread makes batches, and the training thread takes them from a queue."""
    _from_queue(run, accumulate=1)


def accumulated(run: TorchRun) -> None:
    """As `queue`, with an optimizer step after every 4th batch."""
    _from_queue(run, accumulate=4)


def _from_queue(run: TorchRun, accumulate: int) -> None:
    batches: queues.Queue[tuple[torch.Tensor, torch.Tensor]] = queues.Queue(2)
    model = layers()
    run.watch_model(model)
    optimizer = torch.optim.AdamW(model.parameters())
    pause, done = threading.Event(), threading.Event()

    def prefetch() -> None:
        while not done.is_set():
            pause.wait(0.15 + run.slowness.seconds)  # as from a network
            batches.put(random_batch())

    thread = threading.Thread(target=prefetch)
    thread.start()
    run.get_ready()
    with run.truth.loop():
        for number in range(1, STEPS + 1):
            with run.truth.region("data"), run.slowness.part() if run.slow == "loader" else nullcontext():
                inputs, targets = batches.get()
            with run.truth.region("forward"):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            if number % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                run.truth.stepped()
    done.set()
    while thread.is_alive():  # it may wait for room in the queue
        with suppress(queues.Empty):
            batches.get(timeout=0.01)


def streamed(run: TorchRun) -> None:
    """Samples from a tar file, which is read from its beginning to its end, as webdataset does."""
    path, model = run.truth.folder / "shard.tar", layers()
    with tarfile.open(path, "w") as shard:
        for number in range(STEPS * BATCH):
            sample = np.random.default_rng(number).random(WIDTH, np.float32).tobytes()
            member = tarfile.TarInfo(f"{number}.bin")
            member.size = len(sample)
            shard.addfile(member, io.BytesIO(sample))
    run.watch_model(model)
    gc.collect()  # else in the first forward pass
    run.train(model, torch.optim.AdamW(model.parameters()), _batches_of(run, path))


def _batches_of(run: TorchRun, path: Path) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    with tarfile.open(path, "r|") as shard:
        members = iter(shard)
        for _ in range(STEPS):
            with run.truth.region("data"):
                samples = [_sample(shard.extractfile(member)) for member in islice(members, BATCH)]
                batch = torch.from_numpy(np.stack(samples)), torch.tensor([int(first[0] * 10) for first in samples])
            yield batch


def _sample(content: IO[bytes] | None) -> Any:
    return np.frombuffer(content.read() if content else b"", np.float32)


def evaluated(run: TorchRun) -> None:
    """Epochs with a DataLoader, and between them an evaluation on slices of a tensor."""
    model, held_out = layers(), [random_batch() for _ in range(STEPS // 4)]
    run.watch_model(model)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(run.samples(STEPS // 4), batch_size=BATCH)
    run.get_ready()
    with run.truth.loop():
        for _ in range(4):
            for inputs, targets in loader:
                with run.truth.region("forward"):
                    loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.truth.stepped()
            with torch.no_grad():
                for inputs, targets in held_out:
                    with run.truth.region("evaluate"):
                        nn.functional.cross_entropy(model(inputs), targets)
