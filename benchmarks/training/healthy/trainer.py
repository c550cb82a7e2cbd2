"""A trainer with callbacks, a collator, accumulation and a schedule, in the manner of the Trainer of transformers."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, WIDTH, HEADS, LAYERS, CLASSES, LONGEST = 8_000, 192, 4, 4, 4, 96
Batch = dict[str, torch.Tensor]


@dataclass
class Arguments:
    batch: int = 16
    accumulate: int = 2
    rate: float = 5e-5
    warm_up: int = 100
    most_norm: float = 1.0
    log_every: int = 10


@dataclass
class State:
    step: int = 0
    epoch: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


class Callback:
    def on_step_begin(self, arguments: Arguments, state: State) -> None: ...
    def on_step_end(self, arguments: Arguments, state: State) -> None: ...
    def on_log(self, arguments: Arguments, state: State, logs: dict[str, float]) -> None: ...


class Progress(Callback):
    def on_step_end(self, arguments: Arguments, state: State) -> None:
        print(f"{state.step}it", end="\r")


class Print(Callback):
    def on_log(self, arguments: Arguments, state: State, logs: dict[str, float]) -> None:
        print(json.dumps(logs))


class Speed(Callback):
    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.took: list[float] = []

    def on_step_begin(self, arguments: Arguments, state: State) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, arguments: Arguments, state: State) -> None:
        self.took = [*self.took[-99:], time.perf_counter() - self.began]

    def on_log(self, arguments: Arguments, state: State, logs: dict[str, float]) -> None:
        logs["steps_per_second"] = len(self.took) / sum(self.took) if self.took else 0.0


class Sentences(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Tokenized before the training."""

    def __init__(self, count: int) -> None:
        drawn = random.Random(0)
        self.rows = [
            {
                "input_ids": [drawn.randrange(1, WORDS) for _ in range(drawn.randrange(LONGEST // 2, LONGEST))],
                "label": drawn.randrange(CLASSES),
            }
            for _ in range(count)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def collate(rows: list[dict[str, Any]]) -> Batch:
    longest = max(len(row["input_ids"]) for row in rows)
    padded = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    tokens = torch.tensor(padded)
    return {"input_ids": tokens, "mask": tokens == 0, "labels": torch.tensor([row["label"] for row in rows])}


class Classifier(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, input_ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        logits = self.head(self.encoder(x, src_key_padding_mask=mask)[:, 0])
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Trainer:
    def __init__(self, model: nn.Module, arguments: Arguments, data: Dataset, callbacks: list[Callback]) -> None:
        self.model, self.arguments, self.data, self.callbacks = model, arguments, data, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / arguments.warm_up)
        )
        self.state = State()

    def call(self, event: str, *values: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self.arguments, self.state, *values)

    def batches(self) -> Iterator[Batch]:
        loader = DataLoader(self.data, self.arguments.batch, shuffle=True, collate_fn=collate, drop_last=True)
        while True:
            yield from loader
            self.state.epoch += 1

    def training_step(self, inputs: Batch) -> torch.Tensor:
        self.model.train()
        loss = self.model(**inputs)["loss"] / self.arguments.accumulate
        loss.backward()
        return loss.detach()

    def train(self) -> None:
        total = torch.tensor(0.0)
        for number, inputs in enumerate(self.batches()):
            if number % self.arguments.accumulate == 0:
                self.call("on_step_begin")
            total += self.training_step(inputs)
            if number % self.arguments.accumulate != self.arguments.accumulate - 1:
                continue
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.arguments.most_norm)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            self.state.step += 1
            self.call("on_step_end")
            if self.state.step % self.arguments.log_every == 0:
                logs = {
                    "loss": round(total.item() / self.arguments.log_every, 4),
                    "grad_norm": norm.item(),
                    "learning_rate": self.schedule.get_last_lr()[0],
                    "epoch": self.state.epoch,
                }
                total -= total
                self.state.history.append(logs)
                self.call("on_log", logs)


def main() -> None:
    Trainer(Classifier(), Arguments(), Sentences(4_000), [Progress(), Print(), Speed()]).train()


if __name__ == "__main__":
    main()
