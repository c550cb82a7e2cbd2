"""Loops of other kinds: distillation, truncated backpropagation through time, asyncio, and functions of gradients."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, STEPS, layers, random_batch
from tests.frameworks.jobs.recording.pytorch import TorchRun

SEQUENCES, CHUNKS, LENGTH, FEATURES, ROWS = 12, 4, 32, 64, 64
NETWORK_S = 0.02


def distillation(run: TorchRun) -> None:
    """A student learns from a frozen teacher, which computes without gradients; an average of the weights by hand."""
    teacher, student = layers().eval(), layers()
    average = copy.deepcopy(student)
    run.slow_down(student)
    optimizer = torch.optim.AdamW(student.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in DataLoader(run.samples(), batch_size=BATCH):
            with run.truth.region("forward"):
                with torch.no_grad():
                    wanted = teacher(inputs).softmax(-1)
                found = student(inputs)
                loss = nn.functional.cross_entropy(found, targets)
                loss = loss + nn.functional.kl_div(found.log_softmax(-1), wanted, reduction="batchmean")
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), student.parameters(), strict=True):
                    mean.lerp_(weight, 0.01)
            run.truth.stepped()


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(FEATURES, 256, batch_first=True), nn.Linear(256, FEATURES)

    def forward(self, inputs: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        found, state = self.cell(inputs, state)
        return self.head(found), state


def truncated(run: TorchRun) -> None:
    """A recurrent network learns from chunks of long sequences in a memory map; each chunk is a step."""
    path, model = Path(run.truth.folder) / "sequences.bin", _Recurrent()
    shape = (SEQUENCES, ROWS, CHUNKS * LENGTH, FEATURES)
    np.random.default_rng(0).random(shape, np.float32).tofile(path)
    run.watch_model(model)
    optimizer = torch.optim.Adam(model.parameters())
    run.get_ready()
    with run.truth.loop():
        data, state = np.memmap(path, np.float32, "r", shape=shape), None
        for number in range(SEQUENCES * CHUNKS):
            sequence, chunk = divmod(number, CHUNKS)
            with run.truth.region("data"):
                run.delay("loader")
                rows = data[sequence, :, chunk * LENGTH : (chunk + 1) * LENGTH]
                inputs = torch.from_numpy(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
            found, state = model(inputs[:, :-1], state if chunk else None)
            with run.truth.region("forward"):
                loss = nn.functional.mse_loss(found, inputs[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state = tuple(one.detach() for one in state)
            run.truth.stepped()


def asynchronous(run: TorchRun) -> None:
    """Batches come over the network of an event loop, which also trains."""
    asyncio.run(_asynchronous(run))


async def _asynchronous(run: TorchRun) -> None:
    model = layers()
    run.watch_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run.get_ready()
    with run.truth.loop():
        for _ in range(STEPS):
            with run.truth.region("data"):
                inputs, targets = await _received(run)
            with run.truth.region("forward"):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            run.truth.stepped()


async def _received(run: TorchRun) -> tuple[torch.Tensor, torch.Tensor]:
    if run.slow == "loader":
        with run.slowness.part():
            await asyncio.sleep(run.slowness.seconds)
    await asyncio.sleep(NETWORK_S)
    return random_batch()


def functional(run: TorchRun) -> None:
    """torch.func computes gradients, and the weights are updated by hand: neither backward() nor an optimizer."""
    model = layers()
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss_of(weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(model, weights, (inputs,)), targets)

    gradient = torch.func.grad(loss_of)
    gradient(weights, *random_batch())  # the first call imports for a second
    run.slow_down(model)
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in DataLoader(run.samples(), batch_size=BATCH):
            with run.truth.region("forward"):
                gradients = gradient(weights, inputs, targets)
            weights = {name: weight - 0.01 * gradients[name] for name, weight in weights.items()}
            run.truth.stepped()
