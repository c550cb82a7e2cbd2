"""Loops by hand with unusual optimizers."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, CLASSES, STEPS, WIDTH, layers
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.truth import GLUE


class _Gan:
    """A generator and a discriminator."""

    def __init__(self, run: TorchRun) -> None:
        self.run = run
        self.generator, self.discriminator = layers(WIDTH), layers(1)
        run.watch_model(self.generator)
        run.watch_model(self.discriminator)
        self.generating = torch.optim.Adam(self.generator.parameters(), lr=1e-4)
        self.discriminating = torch.optim.Adam(self.discriminator.parameters(), lr=1e-4)

    def discriminate(self, real: torch.Tensor) -> torch.Tensor:
        """The discriminator's step. Returns the generated samples."""
        noise = torch.randn(len(real), WIDTH)
        with self.run.truth.region("forward"):
            fake = self.generator(noise)
            loss = _loss(self.discriminator(real), 1) + _loss(self.discriminator(fake.detach()), 0)
        self.discriminating.zero_grad()
        loss.backward()
        self.discriminating.step()
        return fake

    def generate(self, fake: torch.Tensor) -> None:
        """The generator's step."""
        with self.run.truth.region("forward"):
            loss = _loss(self.discriminator(fake), 1)
        self.generating.zero_grad()
        loss.backward()
        self.generating.step()


def _loss(found: torch.Tensor, wanted: float) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(found, torch.full_like(found, wanted))


def gan(run: TorchRun) -> None:
    """Two optimizers in each step."""
    _train_gan(run, (real for real, _ in DataLoader(run.samples(), batch_size=BATCH)))


def gan_of_two_loaders(run: TorchRun) -> None:
    """Two optimizers, each with a loader of its own."""
    both = _Gan(run)
    first, second = (DataLoader(run.samples(STEPS // 2), batch_size=BATCH) for _ in range(2))
    run.get_ready()
    with run.truth.loop():
        for (real, _), (noise, _) in zip(first, second, strict=True):
            both.discriminate(real)
            with run.truth.region("forward"):
                fake = both.generator(noise)
            both.generate(fake)
            run.truth.stepped()


def gan_by_hand(run: TorchRun) -> None:
    """Two optimizers, and batches that are made by hand."""
    _train_gan(run, (real for real, _ in run.batches()))


def _train_gan(run: TorchRun, batches: Iterable[Any]) -> None:
    both = _Gan(run)
    run.get_ready()
    with run.truth.loop():
        for real in batches:
            both.generate(both.discriminate(real))
            run.truth.stepped()


def lbfgs(run: TorchRun) -> None:
    """An optimizer that calls the forward and the backward pass several times."""
    model = layers(width=WIDTH)
    run.watch_model(model)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=4)
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in DataLoader(run.samples(STEPS // 2), batch_size=BATCH):

            def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
                with run.truth.region(GLUE):
                    optimizer.zero_grad()
                    with run.truth.region("forward"):
                        loss = nn.functional.cross_entropy(model(inputs), targets)
                    loss.backward()
                return loss

            optimizer.step(closure)
            run.truth.stepped()


def in_backward(run: TorchRun) -> None:
    """Each parameter has an optimizer, which steps when its gradient is complete."""
    model = layers(CLASSES)
    run.watch_model(model)
    optimizers = {parameter: torch.optim.AdamW([parameter], foreach=False) for parameter in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        with run.truth.region(GLUE):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    run.get_ready()
    with run.truth.loop():
        for inputs, targets in DataLoader(run.samples(), batch_size=BATCH):
            with run.truth.region("forward"):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            run.truth.stepped()
