"""One of two ranks of distributed training on CPUs, in unmodified PyTorch; run by test_distributed.py.

    python train_distributed.py RANK STORE STEPS

Trains a step, prints `ready`, waits for a line, and trains the other steps. Rank 1 is late for every step and for every
other collective. Rank 0 starts a collective that fails. Prints a summary as JSON, and waits for another line.
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
from torch import distributed, nn

LATE = 0.1
"""Seconds."""


def main(rank: int, store: str, steps: int) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    impatient = distributed.new_group(timeout=timedelta(seconds=3))
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    train(model, 1, late=0)
    say("ready")
    sys.stdin.readline()
    late = LATE * rank
    train(model, steps, late)
    caught = rank == 0 and fails(impatient)
    for _ in range(3):
        time.sleep(late)
        distributed.all_reduce(torch.ones(1))
    say(json.dumps({"caught": caught}))
    sys.stdin.readline()
    distributed.destroy_process_group()


def train(model: nn.Module, steps: int, late: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        time.sleep(late)
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def fails(group: distributed.ProcessGroup | None) -> bool:
    """Whether a collective without the other rank raises: an exception crosses c10d::Work::wait."""
    try:
        distributed.all_reduce(torch.ones(1), group=group)
    except RuntimeError:
        return True
    return False


def say(text: str) -> None:
    os.write(ANSWERS, f"{text}\n".encode())


ANSWERS = os.dup(1)
os.dup2(2, 1)  # PyTorch 2.7 to 2.9 print the connections of gloo
torch.set_num_threads(1)
main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
