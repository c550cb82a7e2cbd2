"""A rank of distributed training on CPUs, in unmodified PyTorch; run by test_torchrun.py.

    torchrun --nproc-per-node 2 train_torchrun.py FOLDER STEPS

Prints `ready` once all ranks have joined, and trains when FOLDER/go exists. A DataLoader's worker decodes the data in a
`record_function`. Prints its pid, its rank and the pid of its worker as JSON, and ends when FOLDER/end exists.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn


class Decoded:
    """A data set. Each sample is the pid of the process that decoded it."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        with torch.profiler.record_function("decode"):
            return torch.tensor([float(os.getpid())])


def main(folder: Path, steps: int) -> None:
    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    say("ready")
    wait_for(folder / "go")
    workers = set()
    loader = torch.utils.data.DataLoader(Decoded(4 * steps), batch_size=4, num_workers=1, persistent_workers=True)
    for inputs in loader:
        workers |= set(map(int, inputs.flatten().tolist()))
        model(inputs / 1e6).sum().backward()
        optimizer.step()
    (worker,) = workers
    say(json.dumps({"pid": os.getpid(), "rank": distributed.get_rank(), "worker": worker}))
    wait_for(folder / "end")
    distributed.destroy_process_group()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def say(text: str) -> None:
    os.write(ANSWERS, f"{text}\n".encode())  # in one write: the ranks share a pipe


ANSWERS = os.dup(1)
os.dup2(2, 1)  # PyTorch 2.7 to 2.9 print the connections of gloo
torch.set_num_threads(1)
main(Path(sys.argv[1]), int(sys.argv[2]))
