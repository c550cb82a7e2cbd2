"""torch.compile: its generated code calls few of PyTorch's operators."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, layers, random_batch
from tests.frameworks.jobs.recording.pytorch import TorchRun


def with_loader(run: TorchRun) -> None:
    """A compiled model and a DataLoader."""
    _train(run, DataLoader(run.samples(), batch_size=BATCH))


def without_loader(run: TorchRun) -> None:
    """A compiled model and batches that are made by hand."""
    _train(run, run.batches())


def _train(run: TorchRun, batches: Iterable[Any]) -> None:
    plain = layers()
    model, optimizer = torch.compile(plain), torch.optim.AdamW(plain.parameters())
    nn.functional.cross_entropy(model(random_batch()[0]), random_batch()[1]).backward()  # compiles
    run.slow_down(model)  # outside of the compiled code, which would be compiled again for each delay
    run.train(model, optimizer, batches)
