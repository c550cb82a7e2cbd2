"""A training job that counts its own actions, for `make gpu-check`: plain PyTorch, on a GPU if it finds one.

    python -m tests.gpu.training STEPS [profiled]    # in the repository's folder; needs only PyTorch

Warms up, prints `ready` and waits for a line of input; trains, prints `trained` and waits for another line. Then it
prints, as JSON, its actions between the two lines, with the names of quantities.py. With `profiled`, torch.profiler,
which uses CUPTI, counts the CUDA calls; the script counts everything else.
"""

import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from tests.gpu.profiler_trace import BETWEEN, count

BATCH, WIDTH = 32, 512
REPEATED = 20
"""Passes of compiled code, and replays of a CUDA graph."""
LOADING_S = 0.003
"""Seconds that loading a batch takes."""
FREED, KEPT = 64 << 20, 32 << 20
"""Bytes allocated and then freed, and bytes kept. Both are more than PyTorch's allocator keeps cached."""


class Samples(torch.utils.data.Dataset):  # type: ignore[misc]  # mypy does not know torch
    """Random samples. A batch of them takes `LOADING_S` to load."""

    def __init__(self, batches: int) -> None:
        self._count = batches * BATCH

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(LOADING_S / BATCH)
        return torch.randn(WIDTH), index % 10


class Job:
    """Trains, and counts its actions."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.did: defaultdict[str, float] = defaultdict(int)
        layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)]
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.held: list[torch.Tensor] = []
        self.graph: Any = None
        self.kept = [parameter.detach().clone() for parameter in self.model.parameters()]

    def train(self, steps: int) -> None:
        """One epoch with `steps` steps."""
        for inputs, labels in self.loaded(steps):
            with self.timed("gpu_compute"):
                self.learn(inputs.to(self.device), labels.to(self.device))
            if distributed.is_initialized():
                self.reduce()
            with self.timed("optimizer_step"):
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.did["scopes, Optimizer.step#AdamW.step"] += 1
            self.did["scopes, Optimizer.zero_grad#AdamW.zero_grad"] += 1

    def loaded(self, steps: int) -> Iterator[list[torch.Tensor]]:
        """The batches."""
        batches = iter(torch.utils.data.DataLoader(Samples(steps), batch_size=BATCH))
        while batch := self.next_of(batches):
            yield batch

    def next_of(self, batches: Iterator[list[torch.Tensor]]) -> list[torch.Tensor] | None:
        """The next batch. The last call, which returns None, is a scope as well."""
        self.did["scopes, enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] += 1
        with self.timed("data_loading"):
            return next(batches, None)

    def learn(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        """Forward and backward pass. Waits for the loss in between."""
        with torch.profiler.record_function("my forward"):
            loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.item()
        loss.backward()
        self.did["scopes, my forward"] += 1
        self.did["scopes, backward"] += 1

    def reduce(self) -> None:
        """Waits for the backward pass, reduces every gradient, waits for the result, and keeps a copy on the device."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        with self.timed("gpu_compute"):
            torch.cuda.synchronize()
        with self.timed("nccl_collective"):
            for gradient in gradients:
                distributed.all_reduce(gradient)
                self.did["collectives, all_reduce"] += 1
                self.did["bytes of collectives, all_reduce"] += gradient.nbytes
            torch.cuda.synchronize()
        with self.timed("gpu_compute"):
            for kept, gradient in zip(self.kept, gradients, strict=True):
                kept.copy_(gradient)

    def allocate(self) -> None:
        """Allocates memory from CUDA, and frees a part of it."""
        freed, kept = (torch.empty(size, dtype=torch.uint8, device=self.device) for size in (FREED, KEPT))
        self.held.append(kept)
        del freed
        torch.cuda.empty_cache()

    def compile_and_capture(self) -> None:
        """Prepares code of torch.compile, whose kernels Triton launches, and a CUDA graph of two kernels."""
        layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.compiled = torch.compile(layers.to(self.device))
        self.inputs = torch.randn(BATCH, WIDTH, device=self.device)
        self.graph, numbers = torch.cuda.CUDAGraph(), torch.zeros(WIDTH, device=self.device)
        with torch.cuda.graph(self.graph):
            numbers.mul_(0.5).add_(1)

    def run_compiled(self) -> None:
        """Passes of the compiled code, forward and backward, and replays of the graph."""
        for _ in range(REPEATED):
            self.compiled(self.inputs).square().mean().backward()
            self.did["scopes, backward"] += 1
            self.graph.replay()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the duration of the block to the phase."""
        begin = time.perf_counter()
        yield
        self.did[f"seconds, {phase}"] += time.perf_counter() - begin


def main(steps: int, *, profiled: bool) -> None:
    """The whole job."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and distributed.is_nccl_available():
        distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    job = Job(device)
    if profiled and device == "cuda":
        job.compile_and_capture()
    with profiler() if profiled else nullcontext() as profile:
        work(job, 3)
        job.did.clear()
        with torch.profiler.record_function(BETWEEN):
            print_and_wait("ready")
            work(job, steps)
            print_and_wait("trained")
    did = {**job.did, **(calls(profile) if profile else {})}
    print_line(json.dumps({"torch": torch.__version__, "gpu": gpu(), "did": did}))
    if distributed.is_initialized():
        distributed.destroy_process_group()


def work(job: Job, steps: int) -> None:
    """The compared actions. Empties PyTorch's cache at the end, so that the next call allocates again."""
    held = torch.cuda.memory_reserved() if job.device == "cuda" else 0
    job.train(steps)
    if job.graph:
        job.run_compiled()
    if job.device == "cuda":
        job.allocate()
        torch.cuda.synchronize()
        job.did["memory at the end, bytes"] += torch.cuda.memory_reserved() - held


def profiler() -> Any:
    """A torch.profiler, which loads CUPTI before the process is probed."""
    return torch.profiler.profile(activities=torch.profiler.supported_activities())


def calls(profile: Any) -> Counter[str]:
    """The CUDA calls in the region `BETWEEN`."""
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        return count(json.loads(Path(folder, "trace.json").read_text())["traceEvents"])


def gpu() -> str | None:
    """The name of the GPU; None if the job ran on the CPU."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_and_wait(text: str) -> None:
    print_line(text)
    sys.stdin.readline()


if __name__ == "__main__":
    main(int(sys.argv[1]), profiled="profiled" in sys.argv[2:])
