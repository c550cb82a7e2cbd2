"""Training on threads that are not the first."""

import threading

import torch
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, STEPS, layers
from tests.frameworks.jobs.recording.pytorch import TorchRun


def _train(run: TorchRun, steps: int) -> None:
    model = layers()
    run.watch_model(model)
    run.train(model, torch.optim.AdamW(model.parameters()), DataLoader(run.samples(steps), batch_size=BATCH))


def second(run: TorchRun) -> None:
    """The first thread waits for the one that trains."""
    run.get_ready()
    _on_threads(run, 1)


def two(run: TorchRun) -> None:
    """Two threads train at once, each with a model of its own."""
    run.get_ready()
    _on_threads(run, 2)


def _on_threads(run: TorchRun, count: int) -> None:
    threads = [threading.Thread(target=_train, args=(run, STEPS // count)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
