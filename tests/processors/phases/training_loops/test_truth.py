"""Recorded training loops, compared with their own records. `make bench` does the same live, and on a GPU
`benchmarks phases_gpu`."""

from itertools import chain

import numpy as np
import pytest

from benchmarks.phases.phases_gpu import BAR
from benchmarks.phases.real_loops import BOUNDARY_US, DDP, OVERLAP, PHASES_OF, bar, phases_of, score, scores
from benchmarks.training.runs import recorded
from benchmarks.training.scenarios import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_phases_are_true(name: str) -> None:
    scenario = SCENARIOS[name]
    for scored in scores(*recorded(name), scenario):
        assert scored.agreement >= bar(scenario)
        assert scored.gap_ns == 0
        for kind in scored.edges_us:
            assert np.median(np.abs(scored.edges_us[kind])) <= BOUNDARY_US, kind
        measured, true = scored.hidden_ns
        assert measured == pytest.approx(true, rel=OVERLAP)


@pytest.mark.parametrize(
    ("name", "more"), [("AdamW", ()), ("asynchronous streams", ("collective", "wait"))], ids=["CPU", "GPU"]
)
def test_every_kind_of_edge_was_compared(name: str, more: tuple[str, ...]) -> None:
    edges = chain.from_iterable(scored.edges_us for scored in scores(*recorded(name), SCENARIOS[name]))
    kinds = ("data", "backward", "optimizer", "zero_grad", *more)
    assert sorted(edges) == sorted(f"{kind} {side}" for kind in kinds for side in ("begins", "ends"))


def test_collectives_of_asynchronous_streams_are_both_hidden_and_waited_for() -> None:
    name = "asynchronous streams"
    (truth,) = recorded(name)[1]
    (scored,) = scores(*recorded(name), SCENARIOS[name])
    exposed = sum(end - start for what, start, end in truth["marks"] if what == "collective")
    assert scored.hidden_ns[0] > 100_000_000
    assert exposed > 100_000_000


ON_GPU = (
    "GPU, loss read every step",
    "GPU, 2 workers, pinned",
    "GPU, torch.compile",
    "GPU, CUDA graph",
    "GPU, CUDA graph after eager steps",
    "GPU, NCCL, DDP",
    "GPU, transformers",
)


@pytest.mark.parametrize("name", ON_GPU)
def test_phases_are_true_on_a_real_gpu(name: str) -> None:
    batches, (truth,) = recorded(name)
    agreed = score(phases_of(batches)[truth["pid"]], truth, DDP if "DDP" in name else PHASES_OF)
    assert agreed.agreement >= BAR
    assert agreed.gap_ns == 0
