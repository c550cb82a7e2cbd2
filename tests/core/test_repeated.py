"""A repeated event is logged at once, then once in each interval with its number. No event is left uncounted.

A value is made once, whichever threads need it first.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from otel_zernel.once import once
from otel_zernel.repeated import Repeated, RepeatedByKey, more
from otel_zernel.testing import FakeClock


def test_the_first_event_is_due_and_the_next_line_has_the_number_since() -> None:
    clock = FakeClock()
    repeated = Repeated(clock.monotonic)
    dues = []
    for _ in range(130):
        dues.append(repeated.add())
        clock.advance(1.0)
    assert [due for due in dues if due] == [1, 60, 60]


def test_other_keys_are_due_by_themselves_and_their_number_is_bounded() -> None:
    repeated = RepeatedByKey(FakeClock().monotonic)
    assert [repeated.add("a"), repeated.add("a"), repeated.add("b")] == [1, 0, 1]
    dues = [repeated.add(number) for number in range(1000)]
    assert sum(map(bool, dues)) < 60


def test_one_event_needs_no_number() -> None:
    assert (more(1), more(1200)) == ("", " (1,200 times since the last line)")


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
