"""Long work lets other tasks run, and a cancellation does not leave it half done."""

import asyncio
import time

import pytest

from otel_zernel.engine.yielding import LONGEST_SLICE, Yielder


async def work(done: list[int], pieces: int) -> None:
    with Yielder() as yielder:
        for piece in range(pieces):
            ends = time.perf_counter() + LONGEST_SLICE
            while time.perf_counter() < ends:
                pass
            done.append(piece)
            await yielder.yield_if_due()


async def test_other_tasks_run_between_the_pieces() -> None:
    done: list[int] = []
    lengths: list[int] = []

    async def record() -> None:
        while len(done) < 5:
            lengths.append(len(done))
            await asyncio.sleep(0)

    await asyncio.gather(work(done, 5), record())
    assert set(lengths) >= {1, 2, 3, 4}


async def test_a_cancellation_waits_for_the_end_of_the_work() -> None:
    done: list[int] = []
    working = asyncio.create_task(work(done, 5))
    await asyncio.sleep(0)  # the first piece
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert done == [0, 1, 2, 3, 4]


async def test_an_error_in_the_work_is_raised() -> None:
    with pytest.raises(ValueError, match="broken"), Yielder():
        raise ValueError("broken")
