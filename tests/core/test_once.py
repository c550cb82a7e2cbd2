"""A value is made once, whichever threads need it first."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from otel_zernel.once import once

THREADS = 8


def test_threads_that_come_at_the_same_time_get_one_value() -> None:
    here = Barrier(2, timeout=10)
    calls: list[object] = []

    def make() -> object:
        calls.append(object())
        if len(calls) == 1:
            here.wait()  # until another thread asks, too
        return calls[-1]

    value = once(make)

    def ask(number: int) -> object:
        if number == 1:
            here.wait()
        return value()

    with ThreadPoolExecutor(THREADS) as pool:
        values = set(pool.map(ask, range(THREADS)))
    assert len(calls) == len(values) == 1
