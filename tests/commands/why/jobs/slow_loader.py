"""A training program whose samples take 4 ms each. `python slow_loader.py SECONDS [STEPS [STATUS]]`"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SlowReads(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Samples of a slow store."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.004)
        return torch.randn(64), index % 10


def main(seconds: float, steps: int = 1_000_000) -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer, loss_of = torch.optim.AdamW(model.parameters()), nn.CrossEntropyLoss()
    end = time.monotonic() + seconds
    for step, (inputs, targets) in enumerate(DataLoader(SlowReads(), batch_size=8), 1):
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
        if step == 10 or step >= steps:
            sys.stdout.write(f"done after {step} steps\n")
            sys.stdout.flush()
        if step >= steps or time.monotonic() > end:
            break


main(float(sys.argv[1]), *map(int, sys.argv[2:3]))
sys.exit(*map(int, sys.argv[3:4]))
