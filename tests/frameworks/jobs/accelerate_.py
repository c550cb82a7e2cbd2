"""accelerate: a loop by hand with accumulation."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, layers
from tests.frameworks.jobs.recording.pytorch import TorchRun


def train(run: TorchRun) -> None:
    """A loop by hand on accelerate, with accumulation."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    plain = layers()
    run.watch_model(plain)
    loader = DataLoader(run.samples(), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters()), loader)
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                with run.truth.region("forward"):
                    loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            run.truth.stepped()
