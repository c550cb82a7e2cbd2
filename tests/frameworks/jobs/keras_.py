"""Keras 3 on PyTorch: its optimizers are not PyTorch's."""

import os
import time
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"
import keras
from torch.utils.data import DataLoader

from tests.frameworks.jobs.models.small import BATCH, CLASSES, STEPS, WIDTH
from tests.frameworks.jobs.recording.pytorch import TorchRun


class _Counted(keras.callbacks.Callback):
    def __init__(self, run: TorchRun) -> None:
        super().__init__()
        self.run = run

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.run.truth.stepped()


def _slow_down(run: TorchRun, optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the optimizer apply its gradients again and again."""
    apply = optimizer.apply

    def slow(*args: Any) -> None:
        def repeat(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                apply(*args)

        apply(*args)
        run.delay("optimizer", repeat)

    optimizer.apply = slow


def fit(run: TorchRun) -> None:
    """Two epochs, each with a validation."""
    hidden = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((WIDTH,)), *hidden, keras.layers.Dense(CLASSES)])
    optimizer = keras.optimizers.AdamW()
    run.slow_down(model.layers[0])
    run.truth.wrap(model, "call", "forward")
    run.truth.wrap(model, "compute_loss", "forward")
    if run.slow == "optimizer":
        _slow_down(run, optimizer)
    run.truth.wrap(optimizer, "apply", "optimizer")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    training = DataLoader(run.samples(STEPS // 2), batch_size=BATCH)
    validation = DataLoader(run.samples(STEPS // 8), batch_size=BATCH)
    run.get_ready()
    with run.truth.loop():
        model.fit(training, epochs=2, validation_data=validation, callbacks=[_Counted(run)], verbose=0)
