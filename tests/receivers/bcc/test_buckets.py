"""A value that a program counts is inside the bounds of its bucket."""

from bisect import bisect_left

import pytest

from otel_zernel_receivers.bcc.config import BucketsConfig
from otel_zernel_receivers.bcc.programs import bounds, counts


def log2l(value: int) -> int:
    """bpf_log2l() of BCC."""
    return max(value.bit_length(), 1)


VALUES = sorted({0, *(number for bit in range(40) for number in ((1 << bit) - 1, 1 << bit, (1 << bit) + 1))})


@pytest.mark.parametrize("value", VALUES)
def test_each_value_is_in_the_bucket_that_its_bounds_promise(value: int) -> None:
    config = BucketsConfig(min=3, max=30)
    filled = counts(config, {log2l(value): 1})
    assert filled.index(1) == bisect_left(bounds(config, 1.0), value)


@pytest.mark.parametrize("value", range(60))
def test_each_value_of_a_linear_histogram_too(value: int) -> None:
    config = BucketsConfig(type="linear", step=5, min=2, max=8)
    filled = counts(config, {value // 5: 1})
    assert filled.index(1) == bisect_left(bounds(config, 1.0), value)


def test_bounds_are_in_the_unit_without_errors_of_rounding() -> None:
    assert bounds(BucketsConfig(min=1, max=3), 1e-9) == [1e-9, 3e-9, 7e-9]
    assert bounds(BucketsConfig(type="fixed", bounds=(1, 5)), 1024) == [1024, 5120]


def test_slots_beyond_the_limits_are_counted_at_the_edges() -> None:
    assert counts(BucketsConfig(min=2, max=3), {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 60: 32}) == [7, 8, 48]


def test_the_slot_of_the_sum_is_no_bucket() -> None:
    assert counts(BucketsConfig(type="fixed", bounds=(1, 2), sum_slot=3), {0: 1, 2: 5, 3: 1000}) == [1, 0, 5]
