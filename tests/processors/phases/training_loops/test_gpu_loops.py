"""Training loops recorded on an H100, compared with their own records; `benchmarks phases_gpu` does the same live."""

import pytest

from benchmarks.phases.phases_gpu import BAR
from benchmarks.phases.real_loops import DDP, PHASES_OF, phases_of, score
from benchmarks.training.runs import recorded

LOOPS = (
    "GPU, loss read every step",
    "GPU, 2 workers, pinned",
    "GPU, torch.compile",
    "GPU, CUDA graph",
    "GPU, CUDA graph after eager steps",
    "GPU, NCCL, DDP",
    "GPU, transformers",
)


@pytest.mark.parametrize("name", LOOPS)
def test_phases_are_true_on_a_real_gpu(name: str) -> None:
    batches, (truth,) = recorded(name)
    found = score(phases_of(batches)[truth["pid"]], truth, DDP if "DDP" in name else PHASES_OF)
    assert found.agreement >= BAR
    assert found.gap_ns == 0
