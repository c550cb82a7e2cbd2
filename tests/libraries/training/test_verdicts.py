"""The rule by which shares of time become a verdict."""

import pytest

from otel_zernel_libraries.training import verdict_of_shares

LIMITS = {
    "input_bound": 0.2,
    "communication_bound": 0.2,
    "optimizer_bound": 0.3,
    "host_bound": 0.3,
    "unstable": 0.5,
    "compute_bound": 0.7,
}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({}, "none"),
        ({"compute_bound": 0.7}, "compute_bound"),
        ({"input_bound": 0.25, "optimizer_bound": 0.4}, "optimizer_bound"),
        ({"input_bound": 0.2, "compute_bound": 0.8, "unstable": 2.0}, "input_bound"),
        ({"unstable": 0.5, "compute_bound": 0.9}, "unstable"),
    ],
)
def test_the_wait_furthest_above_its_limit_decides(values: dict[str, float], verdict: str) -> None:
    assert verdict_of_shares({**dict.fromkeys(LIMITS, 0.0), **values}, LIMITS) == verdict
