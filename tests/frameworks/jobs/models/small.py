"""Small models and synthetic data. A step takes about 120 ms on one CPU."""

import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

WIDTH = 1024
CLASSES = 10
BATCH = 384
STEPS = 40
SAMPLE_S = 0.00002
"""Time to make a sample: a batch takes 10 ms."""


def busy(seconds: float) -> None:
    """Computes in Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Samples(Dataset[Any]):
    """Random vectors and classes."""

    def __init__(self, batches: int = STEPS, slower: float = 0.0) -> None:
        self._count, self._cost = batches * BATCH, SAMPLE_S + slower / BATCH

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        busy(self._cost)
        return torch.randn(WIDTH), index % CLASSES


def layers(outputs: int = CLASSES, width: int = WIDTH) -> nn.Sequential:
    """Three linear layers."""
    hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


def random_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, made quickly."""
    return torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
