"""DistributedDataParallel by gloo, where rank 1 reads its samples slowly.

`torchrun --standalone --nproc-per-node=3 slow_rank.py SECONDS`. Without torchrun, the program starts three ranks by
`torch.multiprocessing.spawn`: each gets its rank as an argument, so no environment has it.
"""

import os
import socket
import sys
import time

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

LATE_RANK = 1
RANKS = 3


class Reads(Dataset):  # type: ignore[misc]  # torch is unknown to mypy
    """Samples that take 1 ms each, or 12 ms for the late rank."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.012 if distributed.get_rank() == LATE_RANK else 0.001)
        return torch.randn(64), index % 10


def spawn(seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        store = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    torch.multiprocessing.spawn(train_spawned, (store, seconds), nprocs=RANKS)


def train_spawned(rank: int, store: str, seconds: float) -> None:
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    train(seconds)


def train(seconds: float) -> None:
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer, loss_of = torch.optim.AdamW(model.parameters()), nn.CrossEntropyLoss()
    end, is_over = time.monotonic() + seconds, torch.zeros(1)
    for inputs, targets in DataLoader(Reads(), batch_size=4):
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
        is_over.fill_(float(time.monotonic() > end))
        distributed.all_reduce(is_over)  # all ranks end after the same step
        if is_over.item():
            break


if __name__ == "__main__":
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
        train(float(sys.argv[1]))
    else:
        spawn(float(sys.argv[1]))
