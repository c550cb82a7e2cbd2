"""A small GPT on characters, in the manner of nanoGPT: a loop without a loader, on random slices of one array."""

import math
import time
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional

WORDS, BLOCK, BATCH, WIDTH, HEADS, LAYERS = 96, 128, 24, 192, 6, 4
RATE, WARM_UP, LONG = 1e-3, 100, 100_000
LOG = 20


class Layer(nn.Module):  # type: ignore[misc]  # torch is unknown to mypy
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        q, k, v = self.attend(self.norm_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, index: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.tokens(index) + self.positions(torch.arange(index.size(1)))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return logits, functional.cross_entropy(logits.view(-1, WORDS), targets.view(-1))


def batch_of(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(data) - BLOCK, (BATCH,))
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(numpy.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(numpy.int64)) for i in starts])
    return x, y


def rate_at(step: int) -> float:
    if step < WARM_UP:
        return RATE * (step + 1) / WARM_UP
    return RATE * 0.5 * (1 + math.cos(math.pi * min(step / LONG, 1.0)))


def main() -> None:
    torch.manual_seed(1337)
    data = numpy.random.default_rng(0).integers(0, WORDS, 1_000_000, dtype=numpy.uint16)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.1)
    x, y = batch_of(data)
    step, began = 0, time.time()
    while True:
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        _, loss = model(x, y)
        x, y = batch_of(data)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % LOG == 0:
            now = time.time()
            print(f"iter {step}: loss {loss.item():.4f}, time {(now - began) * 1000:.2f}ms")
            began = now
        step += 1


if __name__ == "__main__":
    main()
