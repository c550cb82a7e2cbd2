"""A PyTorch DDP loop on the CPU, for torchrun and for ray_ddp.py. It contains no code for the collector.

`torchrun --nproc-per-node 2 --rdzv-id my-job --rdzv-backend c10d --rdzv-endpoint localhost:0 examples/launchers/ddp.py
[EPOCHS]`, while the collector runs examples/training.yaml as root. Needs `pip install torch`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(epochs: int) -> None:
    """Trains as one rank of the group that the environment describes."""
    distributed.init_process_group("gloo")
    torch.manual_seed(distributed.get_rank())
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(6400, 256), torch.randint(10, (6400,)))
    sampler = DistributedSampler(data)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(data, batch_size=32, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
