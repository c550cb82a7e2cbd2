"""CPU time that a training loop spends in its load, its forward pass and after its step, by the clock of its thread.

`python work.py SECONDS FOLDER` trains with PyTorch, and writes FOLDER/truth.0.json: its `pid`, its `loop`, and its
`spent`, the ns of CPU time by "PLACE ACTIVITY". Each step spends a few ms in each place and activity. The loop takes so
many seconds.
"""

import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS = np.random.default_rng(0).random(40_000)
TEXT = b"x" * 1_000_000
RECORD = {str(number): [number, str(number)] * 20 for number in range(100)}
TENSOR = torch.randn(300, 300)
WORKS: dict[str, list[Callable[[], object]]] = {
    "operator": [lambda: [TENSOR @ TENSOR for _ in range(8)], lambda: [TENSOR.tanh() for _ in range(20)]],
    "python": [
        lambda: [str(number * number) for number in range(12_000)],
        lambda: json.loads(json.dumps(RECORD)),
        lambda: sorted({number % 977: number for number in range(15_000)}.items()),
    ],
    "native": [
        lambda: np.sort(NUMBERS),
        lambda: hashlib.sha256(TEXT).digest(),
        lambda: np.fft.fft(NUMBERS),
    ],
}
PLACES = {
    "load": ("operator", "python", "native"),
    "forward": ("operator", "python", "native"),
    "after_step": ("python", "native"),
}


def tokenized() -> Callable[[], object] | None:
    """A library in Rust, if it is installed."""
    try:
        tokenizers = import_module("tokenizers")
    except ImportError:
        return None
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"word": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    text = "word other " * 500
    return lambda: tokenizer.encode(text)


class Truth:
    """The CPU time of the works of a thread."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.counts = False
        self._works = {(place, activity): cycle(WORKS[activity]) for place, some in PLACES.items() for activity in some}

    def at(self, place: str) -> None:
        """Does the works of a place."""
        for activity in PLACES[place]:
            work = next(self._works[place, activity])
            began = time.thread_time_ns()
            work()
            if self.counts:
                self.spent[f"{place} {activity}"] += time.thread_time_ns() - began


def train(seconds: float, folder: Path) -> None:
    torch.set_num_threads(1)
    truth = Truth()

    class Samples(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> torch.Tensor:
            truth.at("load")
            return torch.ones(64)

    class Layer(nn.Module):  # type: ignore[misc]
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            truth.at("forward")
            return inputs

    model = nn.Sequential(nn.Linear(64, 256), Layer(), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    go, began, until = folder / "go", 0, 0.0
    for inputs in DataLoader(Samples(), batch_size=1):
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        truth.at("after_step")
        if not until and go.exists():
            began = time.monotonic_ns()
            until = time.monotonic() + seconds
            truth.counts = True
        if until and time.monotonic() > until:
            break
    written = {"pid": os.getpid(), "loop": [began, time.monotonic_ns()], "marks": [], "spent": truth.spent}
    (folder / "truth.0.json").write_text(json.dumps(written))


if __name__ == "__main__":
    if work := tokenized():
        WORKS["native"].append(work)
    train(float(sys.argv[1]), Path(sys.argv[2]))
