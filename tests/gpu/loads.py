"""Known loads of a GPU, for `make gpu-check`: plain PyTorch with CUDA.

    python -m tests.gpu.loads        # in the repository's folder; needs only PyTorch

Prints `ready`. Each input line `LOAD SECONDS` runs one of LOADS for that time. The answer is a line of JSON: the
`load`, its `seconds`, the `amount` that it did, in the unit of the load, and the kind of GPU. Between two loads, the
GPU is idle.
"""

import json
import sys
import time
from collections.abc import Callable

import torch

SIDE = 8192
"""Rows and columns of the matrices."""
COPIED = 4 << 30
"""Bytes of a copy within the GPU: far more than its cache holds."""
OVER_PCIE = 1 << 30
ROUNDS = 4
"""Repetitions before the host waits for the GPU."""

Load = tuple[Callable[[], object], float]
"""One repetition, and the amount that it does."""


def products(dtype: torch.dtype) -> Load:
    """Matrix products, in floating-point operations."""
    one, other = (torch.randn(SIDE, SIDE, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.mm(one, other, out=out), 2.0 * SIDE**3


def polynomial(dtype: torch.dtype) -> Load:
    """Fused multiplications and additions outside of the tensor cores, in floating-point operations."""
    values = torch.rand(1 << 24, device="cuda").to(dtype)

    @torch.compile  # type: ignore[untyped-decorator]  # mypy does not know torch
    def chained(values: torch.Tensor) -> torch.Tensor:
        made = values
        for _ in range(512):
            made = made * values + values
        return made

    return lambda: chained(values), 1024.0 * values.numel()


def copies(to: str, origin: str, size: int) -> Load:
    """Copies, in bytes. Memory of the host is pinned."""
    source, target = (torch.empty(size, dtype=torch.uint8, device=at, pin_memory=at == "cpu") for at in (origin, to))
    source.fill_(1)
    return lambda: target.copy_(source, non_blocking=True), float(size)


LOADS: dict[str, Callable[[], Load]] = {
    "bf16 products": lambda: products(torch.bfloat16),
    "fp32 products": lambda: products(torch.float32),
    "fp64 products": lambda: products(torch.float64),
    "fp32 polynomial": lambda: polynomial(torch.float32),
    "fp64 polynomial": lambda: polynomial(torch.float64),
    "copies in the GPU": lambda: copies("cuda", "cuda", COPIED),
    "copies to the GPU": lambda: copies("cuda", "cpu", OVER_PCIE),
    "copies from the GPU": lambda: copies("cpu", "cuda", OVER_PCIE),
}


def run(load: str, seconds: float) -> None:
    """Prints `started` after a warm-up, and the result after `seconds`. `idle` does nothing."""
    repeat, amount = LOADS[load]() if load in LOADS else (lambda: time.sleep(0.1), 0.0)
    repeat()
    torch.cuda.synchronize()
    print("started", flush=True)
    begin, repetitions = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(ROUNDS):
            repeat()
        torch.cuda.synchronize()
        repetitions += ROUNDS
    took = time.perf_counter() - begin
    about = {"load": load, "seconds": took, "amount": repetitions * amount}
    properties = torch.cuda.get_device_properties(0)
    about |= {"multiprocessors": properties.multi_processor_count, "capability": (properties.major, properties.minor)}
    print(json.dumps(about), flush=True)


def main() -> None:
    """Runs the loads that the input names."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")
    print("ready", flush=True)
    for line in sys.stdin:
        load, _, seconds = line.strip().rpartition(" ")
        run(load, float(seconds))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
