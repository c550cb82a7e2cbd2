"""Recorded training loops, compared with their own records; `make bench` does the same live."""

from itertools import chain

import numpy as np
import pytest

from benchmarks.phases.real_loops import BOUNDARY_US, OVERLAP, bar, scores
from benchmarks.training.runs import recorded
from benchmarks.training.scenarios import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_phases_are_true(name: str) -> None:
    scenario = SCENARIOS[name]
    for score in scores(*recorded(name), scenario):
        assert score.agreement >= bar(scenario)
        assert score.gap_ns == 0
        for kind in score.edges_us:
            assert np.median(np.abs(score.edges_us[kind])) <= BOUNDARY_US, kind
        measured, true = score.hidden_ns
        assert measured == pytest.approx(true, rel=OVERLAP)


@pytest.mark.parametrize(
    ("name", "more"), [("AdamW", ()), ("asynchronous streams", ("collective", "wait"))], ids=["CPU", "GPU"]
)
def test_every_kind_of_edge_was_compared(name: str, more: tuple[str, ...]) -> None:
    found = chain.from_iterable(score.edges_us for score in scores(*recorded(name), SCENARIOS[name]))
    kinds = ("data", "backward", "optimizer", "zero_grad", *more)
    assert sorted(found) == sorted(f"{kind} {side}" for kind in kinds for side in ("begins", "ends"))


def test_collectives_of_asynchronous_streams_are_both_hidden_and_waited_for() -> None:
    name = "asynchronous streams"
    (truth,) = recorded(name)[1]
    (score,) = scores(*recorded(name), SCENARIOS[name])
    exposed = sum(end - start for what, start, end in truth["marks"] if what == "collective")
    assert score.hidden_ns[0] > 100_000_000
    assert exposed > 100_000_000
