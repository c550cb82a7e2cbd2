"""Lightning with automatic optimization: the optimizer calls the forward and the backward pass."""

from typing import Any

import lightning
import torch
from lightning.pytorch.loops.optimization.automatic import Closure
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, STEPS, layers
from tests.frameworks.jobs.recording.pytorch import TorchRun
from tests.frameworks.jobs.recording.truth import GLUE


class _Module(lightning.LightningModule):
    def __init__(self, run: TorchRun) -> None:
        super().__init__()
        self.run, self.model = run, layers()
        run.watch_model(self.model)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("validation", self._loss(batch))

    def _loss(self, batch: Any) -> torch.Tensor:
        inputs, targets = batch
        with self.run.truth.region("forward"):
            return nn.functional.cross_entropy(self.model(inputs), targets)

    def on_train_batch_end(self, *_: Any) -> None:
        self.run.truth.stepped()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class _WithTeacher(_Module):
    """Learns from a frozen teacher, and keeps a metric, both without gradients, in its step."""

    def __init__(self, run: TorchRun) -> None:
        super().__init__(run)
        self.teacher = layers().eval().requires_grad_(requires_grad=False)

    def _loss(self, batch: Any) -> torch.Tensor:
        inputs, targets = batch
        with self.run.truth.region("forward"):
            with torch.no_grad():
                wanted = self.teacher(inputs).softmax(-1)
            model = self.model(inputs)
            loss = nn.functional.cross_entropy(model, targets)
            loss = loss + nn.functional.kl_div(model.log_softmax(-1), wanted, reduction="batchmean")
            with torch.no_grad():
                self.log("accuracy", (model.argmax(-1) == targets).float().mean())
            return loss


def fit(run: TorchRun) -> None:
    """Two epochs, each with a validation."""
    _fit(run, _Module(run))


def fit_with_teacher(run: TorchRun) -> None:
    """The same with a teacher."""
    _fit(run, _WithTeacher(run))


def _fit(run: TorchRun, module: lightning.LightningModule) -> None:
    run.truth.wrap(Closure, "__call__", GLUE)
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, gradient_clip_val=1.0, **quiet)
    training = DataLoader(run.samples(STEPS // 2), batch_size=BATCH)
    validation = DataLoader(run.samples(STEPS // 8), batch_size=BATCH)
    run.get_ready()
    with run.truth.loop():
        trainer.fit(module, training, validation)
