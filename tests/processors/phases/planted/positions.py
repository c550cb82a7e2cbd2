"""Work of a training loop that no mark shows: checkpoints, an environment, and a compiler.

`python positions.py SECONDS FOLDER` trains with PyTorch, and writes FOLDER/truth.0.json: its `pid`, and its `marks`, a
list of [POSITION, start, end] in ns of CLOCK_MONOTONIC.
"""

import json
import os
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch
import torch._dynamo
from torch import nn

ENVIRONMENT = """
import time

class Environment:
    def step(self, action):
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            sum(range(50))
        time.sleep(0.002)
        return action
"""
EVERY = 60
"""Steps between two checkpoints. In the middle between them a function is compiled."""
WEIGHTS = {"weights": torch.randn(12_000_000)}


def environment_in(folder: Path) -> ModuleType:
    path = folder / "counting_env.py"
    path.write_text(ENVIRONMENT)
    spec = spec_from_file_location("counting_env", path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save_checkpoint(folder: Path) -> None:
    with (folder / "checkpoint.pt").open("wb") as file:
        torch.save(WEIGHTS, file)
        file.flush()
        os.fsync(file.fileno())


def compile_again() -> None:
    """Dynamo alone, which needs no C compiler."""
    torch._dynamo.reset()
    wide = torch.zeros(3)

    def function(inputs: torch.Tensor) -> torch.Tensor:
        for _ in range(150):
            inputs = inputs.sin() + wide
        return inputs

    torch.compile(function, backend="eager")(wide)


def train(seconds: float, folder: Path) -> None:
    torch.set_num_threads(1)
    marks: list[tuple[str, int, int]] = []
    environment = environment_in(folder).Environment()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, go, until, step = torch.ones(1, 64), folder / "go", 0.0, 0

    def mark(position: str, start: int) -> None:
        if until:
            marks.append((position, start, time.monotonic_ns()))

    def update() -> None:
        for _ in range(4):
            model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    while not until or time.monotonic() < until:
        update()
        start = time.monotonic_ns()
        environment.step(step)
        mark("environment", start)
        step += 1
        if step % EVERY == 0:
            start = time.monotonic_ns()
            save_checkpoint(folder)
            mark("checkpoint", start)
        if step % EVERY == EVERY // 2:
            start = time.monotonic_ns()
            compile_again()
            mark("compile", start)
        if not until and go.exists():
            until = time.monotonic() + seconds
    update()  # what came before ends with its mark
    (folder / "truth.0.json").write_text(json.dumps({"pid": os.getpid(), "loop": [], "marks": marks}))


if __name__ == "__main__":
    train(float(sys.argv[1]), Path(sys.argv[2]))
