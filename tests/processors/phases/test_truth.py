"""Recorded training loops, held against what the loops themselves wrote down; `make bench` does the same live."""

from itertools import chain

import numpy as np
import pytest

from benchmarks._scenarios import SCENARIOS
from benchmarks.phases import BOUNDARY_US, bar, recorded, scores


@pytest.mark.parametrize("name", SCENARIOS)
def test_phases_are_the_true_ones(name: str) -> None:
    scenario = SCENARIOS[name]
    for score in scores(*recorded(name), scenario):
        assert score.agreement >= bar(scenario)
        assert score.gap_ns == 0
        for kind in score.edges_us:
            assert np.median(np.abs(score.edges_us[kind])) <= BOUNDARY_US, kind


def test_every_kind_of_edge_was_compared() -> None:
    found = chain.from_iterable(score.edges_us for score in scores(*recorded("AdamW"), SCENARIOS["AdamW"]))
    kinds = ("data", "backward", "optimizer", "zero_grad")
    assert sorted(found) == sorted(f"{kind} {side}" for kind in kinds for side in ("begins", "ends"))
