"""An exporter is stuck when it fails for all of its consumers, or settles nothing for a while; success ends that."""

from otel_zernel.engine.delivery.progress import LONGEST_PAUSE, Progress
from otel_zernel.testing import FakeClock


def progress_of(consumers: int = 1) -> tuple[Progress, FakeClock]:
    clock = FakeClock()
    return Progress(consumers, clock.monotonic), clock


def test_an_exporter_is_stuck_when_as_many_attempts_failed_in_a_row_as_it_has_consumers() -> None:
    progress, _ = progress_of(consumers=3)
    for _ in range(3):
        assert not progress.is_stuck
        progress.begun()
        progress.failed()
    assert progress.is_stuck
    progress.settled()
    assert not progress.is_stuck


def test_an_exporter_that_hangs_is_stuck_after_a_while_until_it_settles_a_batch() -> None:
    progress, clock = progress_of()
    progress.begun()
    clock.advance(LONGEST_PAUSE)
    assert not progress.is_stuck
    clock.advance(0.1)
    assert progress.is_stuck
    progress.settled()
    progress.ended()
    assert not progress.is_stuck


def test_an_exporter_without_work_is_never_stuck() -> None:
    progress, clock = progress_of()
    clock.advance(1000)
    progress.begun()
    assert not progress.is_stuck
    progress.ended()
    progress.settled()
    clock.advance(1000)
    assert not progress.is_stuck
    progress.begun()
    assert not progress.is_stuck


def test_a_slow_exporter_that_settles_batches_is_not_stuck() -> None:
    progress, clock = progress_of(consumers=2)
    for _ in range(10):
        progress.begun()
    for _ in range(10):
        clock.advance(LONGEST_PAUSE - 1)
        progress.settled()
        progress.ended()
        assert not progress.is_stuck
