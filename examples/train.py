"""A plain PyTorch training loop on the CPU, to try the collector with. It contains no code for the collector.

`python examples/train.py [EPOCHS]`, while the collector runs examples/training.yaml as root. Needs `pip install torch`.
"""

import sys
import time
from io import BytesIO

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Random pictures that take 1 ms each to load, and 10 ms in the first batches of an epoch, as from a cold cache."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.01 if index < 48 else 0.001)
        return torch.randn(3, 16, 16), index % 10


def main(epochs: int) -> None:
    """Trains, evaluates and saves a checkpoint in each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 16 * 16, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    training, held_out = DataLoader(Pictures(800), batch_size=16), DataLoader(Pictures(96), batch_size=32)
    for epoch in range(epochs):
        for inputs, targets in training:
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(inputs).argmax(1) == targets).sum()) for inputs, targets in held_out)
        model.train()
        torch.save(model.state_dict(), BytesIO())
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {right} of 96 right")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
