"""ignite: a trainer, and an evaluator between epochs."""

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, STEPS, layers
from tests.frameworks.jobs.recording.pytorch import TorchRun


def run(run: TorchRun) -> None:
    """Two epochs."""
    model = layers()
    run.watch_model(model)
    trainer = create_supervised_trainer(model, torch.optim.AdamW(model.parameters()), nn.functional.cross_entropy)
    evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})
    held_out = DataLoader(run.samples(STEPS // 8), batch_size=BATCH)

    @trainer.on(Events.EPOCH_COMPLETED)
    def _(_: Engine) -> None:
        evaluator.run(held_out)

    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda _: run.truth.stepped())
    training = DataLoader(run.samples(STEPS // 2), batch_size=BATCH)
    run.get_ready()
    with run.truth.loop():
        trainer.run(training, max_epochs=2)
