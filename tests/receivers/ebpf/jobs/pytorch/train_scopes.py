"""Scopes in real PyTorch that are not closed properly, with waits for a (stand-in) GPU in each; run by test_scopes.py.

    python -m tests.receivers.ebpf.jobs.pytorch.train_scopes LIBCUDART

A case (see cases.py) notes the number of waits in each phase.
"""

import contextlib
import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from tests.receivers.ebpf.jobs.pytorch.cases import serve

waited: Counter[str] = Counter()
cudart = ctypes.CDLL(sys.argv[1])
left_open: list[Any] = []
ROUNDS = 5
THREADS = 4


def wait(phase: str) -> None:
    cudart.cudaDeviceSynchronize()
    waited[phase] += 1


def leave_open(name: str) -> None:
    """Opens a scope and never closes it, like code that an exception leaves before the end."""
    scope = record_function(name)
    scope.__enter__()
    left_open.append(scope)


def exceptions() -> None:
    """Exceptions leave scopes, and the `with` of each scope closes it."""
    for _ in range(ROUNDS):
        with contextlib.suppress(ValueError), record_function("outer"), record_function("Optimizer.step#A.step"):
            wait("optimizer_step")
            with record_function("inner"):
                wait("optimizer_step")
                raise ValueError
        wait("unknown")


def open_scopes() -> None:
    """Scopes that are never closed, inside one that is closed and ends them."""
    for _ in range(ROUNDS):
        with record_function("outer"):
            leave_open("Optimizer.step#A.step")
            wait("optimizer_step")
            leave_open("left open")
            wait("optimizer_step")
        wait("unknown")


def open_for_good() -> None:
    """More scopes stay open than the receiver keeps. Later scopes must still be found."""
    for _ in range(40):
        leave_open("left open")
    for _ in range(ROUNDS):
        with record_function("enumerate(DataLoader)#A.__next__"):
            wait("data_loading")
        wait("gpu_compute")


def nested(depth: int) -> None:
    if depth:
        with record_function(f"depth {depth}"):
            nested(depth - 1)
    else:
        with record_function("Optimizer.step#A.step"):
            wait("optimizer_step")
        wait("unknown")


def deep() -> None:
    """More nested scopes than the receiver keeps."""
    for _ in range(ROUNDS):
        nested(20)
        wait("unknown")
    with record_function("after"):
        pass


def threads() -> None:
    """Each thread is in the phase of its own scopes while others have open scopes too."""
    barrier = Barrier(THREADS)
    scopes = {
        "enumerate(DataLoader)#A.__next__": "data_loading",
        "Optimizer.step#A.step": "optimizer_step",
        "Optimizer.zero_grad#A.zero_grad": "optimizer_step",
        "enumerate(DataLoader)#B.__next__": "data_loading",
    }

    def work(name: str, phase: str) -> None:
        for _ in range(ROUNDS):
            with record_function(name):
                barrier.wait()  # every thread is in its scope
                cudart.cudaDeviceSynchronize()
                with record_function("inside"):
                    cudart.cudaDeviceSynchronize()
                barrier.wait()
            waited[phase] += 2

    workers = [Thread(target=work, args=item) for item in scopes.items()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


class OnAnotherThread(torch.autograd.Function):  # type: ignore[misc]
    """Its backward has scopes of its own, on a helper thread."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        def help_backward() -> None:
            cudart.cudaDeviceSynchronize()
            with record_function("helping"):
                cudart.cudaDeviceSynchronize()

        wait("gpu_compute")
        thread = Thread(target=help_backward)
        thread.start()
        thread.join()
        waited["gpu_compute"] += 2
        return gradients[0]


def backward() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(ROUNDS):
        loss = OnAnotherThread.apply(model(torch.ones(1, 1))).sum()
        loss.backward()
        wait("gpu_compute")
        optimizer.step()
        wait("unknown")


CASES: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (exceptions, open_scopes, open_for_good, deep, threads, backward)
}

if __name__ == "__main__":
    serve(CASES, waited, warms_up=False)
