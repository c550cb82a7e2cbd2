"""When heartbeats are due, and the waits between connections."""

import pytest

from otel_zernel_exporters.heartbeat.pace import LONGEST, SHORTEST, Backoff, HeartbeatPace


def test_waits_double_from_1_s_to_30_s_and_start_again_after_an_answer() -> None:
    lowest, highest = Backoff(min), Backoff(max)
    assert [lowest.next() for _ in range(7)] == [1, 2, 4, 8, 15, 15, 15]
    assert [highest.next() for _ in range(7)] == [2, 4, 8, 16, 30, 30, 30]
    lowest.reset()
    assert lowest.next() == SHORTEST
    assert all(SHORTEST <= wait <= LONGEST for wait in [Backoff().next() for _ in range(100)])


def test_heartbeats_keep_their_interval_with_a_random_share() -> None:
    pace = HeartbeatPace(5.0, 0.1, 0.0, uniform=lambda low, high: high)
    assert pace.wait(0.0) == 0.0
    pace.sent(0.0)
    assert pace.wait(0.0) == pytest.approx(5.5)
    assert pace.wait(100.0) == 0.0


def test_heartbeats_that_were_due_without_a_master_are_counted_once() -> None:
    pace = HeartbeatPace(5.0, 0.0, 0.0)
    pace.sent(0.0)
    assert pace.skip(4.0) == 0
    assert pace.skip(21.0) == 3
    assert pace.skip(21.0) == 0
    assert pace.skip(26.0) == 1
