"""Waiting for a condition, and measuring on a busy machine.

Tests with an event loop wait by `until` of `otel_zernel.testing`.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

Value = TypeVar("Value")


def wait_for(find: Callable[[], Value], promise: object = "", within: float = 90.0) -> Value:
    """The first value that is true. Fails with the promise if there is none within so many seconds."""
    end = time.monotonic() + within
    while not (value := find()):
        if time.monotonic() > end:
            pytest.fail(f"not within {within:g} s: {promise}")
        time.sleep(0.01)
    return value


def measured(measure: Callable[[], Value], is_good: Callable[[Value], bool], attempts: int = 3) -> Value:
    """The first measurement that is good, or the last one. On a busy machine, other programs disturb some of them."""
    for _ in range(attempts - 1):
        if is_good(value := measure()):
            return value
    return measure()
