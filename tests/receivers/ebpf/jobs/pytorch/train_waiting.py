"""An unmodified PyTorch training loop that waits for a (stand-in) GPU in every phase; run by test_phases.py.

    python train_waiting.py LIBCUDART STEPS

Prints `ready`, waits for a line, trains, prints the number of waits in each phase as JSON, and waits for another line.
"""

import ctypes
import json
import sys
from collections import Counter
from threading import Thread

import torch
from torch import nn

waited: Counter[str] = Counter()
cudart = ctypes.CDLL(sys.argv[1])


def wait(phase: str, times: int) -> None:
    for _ in range(times):
        cudart.cudaDeviceSynchronize()
    waited[phase] += times


def wait_elsewhere(phase: str, times: int) -> None:
    """Waits on a thread without scopes of its own, like autograd's threads for GPUs."""
    thread = Thread(target=wait, args=(phase, times))
    thread.start()
    thread.join()


class Data:
    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        wait("data_loading", 1)
        wait_elsewhere("data_loading", 2)
        return torch.ones(1)


def forward(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    wait("gpu_compute", 3)
    outputs: torch.Tensor = model(inputs)
    outputs.register_hook(backward)
    return outputs.sum()


def backward(_: torch.Tensor) -> None:
    wait("gpu_compute", 4)
    wait_elsewhere("gpu_compute", 5)


def step(*_: object) -> None:
    wait("optimizer_step", 6)
    with torch.profiler.record_function("inside"):
        wait("optimizer_step", 7)
    wait_elsewhere("optimizer_step", 8)


def train(steps: int) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.register_step_pre_hook(step)
    for inputs in torch.utils.data.DataLoader(Data(2 * steps), batch_size=2):
        forward(model, inputs).backward()
        optimizer.step()
        wait("unknown", 9)


sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdin.readline()
train(int(sys.argv[2]))
sys.stdout.write(json.dumps(waited) + "\n")
sys.stdout.flush()
sys.stdin.readline()
