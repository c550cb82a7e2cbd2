"""Callbacks around PyTorch's own calls, which record the truth of a program on PyTorch."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.frameworks.jobs.models.small import STEPS, WIDTH, Samples, random_batch
from tests.frameworks.jobs.recording.run import Run

LATE_RANK = 1
"""The rank whose forward pass is slow, if a rank is slow."""


class TorchRun(Run):
    """What a program on PyTorch gets."""

    def samples(self, batches: int = STEPS) -> Samples:
        """The data of the program."""
        return Samples(batches, lambda: self.delay("loader"))

    def batches(self, count: int = STEPS) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches that are made by hand."""
        for _ in range(count):
            self.delay("loader")
            yield random_batch()

    def get_ready(self) -> None:
        """Opens scopes until the collector has found the process."""
        while not self.go.exists():
            with torch.profiler.record_function("warm-up"):
                time.sleep(0.02)

    def train(
        self,
        model: Callable[[torch.Tensor], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        batches: Iterable[Any],
        after_step: Callable[[int], None] = lambda _: None,
    ) -> None:
        """The loop that many programs share."""
        self.get_ready()
        with self.truth.loop():
            for number, (inputs, targets) in enumerate(batches):
                with self.truth.region("forward"):
                    loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                after_step(number)
                self.truth.stepped()

    def watch_model(self, model: nn.Module) -> None:
        """Marks the calls of the model."""
        model.register_forward_pre_hook(lambda *_: self.truth.own.enter("forward"))
        self.slow_down(model)
        model.register_forward_hook(lambda *_: self.truth.own.leave(), always_call=True)

    def slow_down(self, model: nn.Module) -> None:
        """Makes the forward pass slow, if it should be."""
        late = self.slow == "rank" and self.truth.rank == LATE_RANK
        if self.slow == "forward" or late:
            model.register_forward_pre_hook(lambda *_: self.delay(self.slow, compute))

    def watch_torch(self) -> None:
        """Marks loads, backward passes and optimizers."""
        self.truth.versions["torch"] = torch.__version__
        self.truth.wrap(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", "data")
        self.truth.wrap(torch.Tensor, "backward", "backward")
        self.truth.wrap(torch.autograd, "backward", "backward")
        self.truth.wrap(Optimizer, "zero_grad", "zero_grad")
        register_optimizer_step_pre_hook(self._step_begins)
        register_optimizer_step_post_hook(lambda *_: self.truth.own.leave())

    def _step_begins(self, *_: Any) -> None:
        self.truth.own.enter("optimizer")
        self.delay("optimizer")


_WEIGHT, _INPUTS = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)


def compute(seconds: float) -> None:
    """Computes with an operator of models."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        nn.functional.linear(_INPUTS, _WEIGHT)
