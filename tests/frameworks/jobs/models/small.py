"""Small models and synthetic data. A step takes about 120 ms on one CPU."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from tests.frameworks.jobs.recording.slowness import busy

WIDTH = 1024
CLASSES = 10
BATCH = 384
STEPS = 20 if os.environ.get("SLOW") else 40
"""Fewer with a slow part, which makes a step four times as long."""
SAMPLE_S = 0.00002
"""Time to make a sample: a batch takes 10 ms."""


class Samples(Dataset[Any]):
    """Random vectors and classes. `delay` is called for each sample."""

    def __init__(self, batches: int, delay: Callable[[], None]) -> None:
        self._count, self._delay = batches * BATCH, delay

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        busy(SAMPLE_S)
        self._delay()
        return torch.randn(WIDTH), index % CLASSES


def layers(outputs: int = CLASSES, width: int = WIDTH) -> nn.Sequential:
    """Three linear layers."""
    hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


def random_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, made quickly."""
    return torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
