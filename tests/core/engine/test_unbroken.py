"""A cancellation does not leave work half done."""

import asyncio

import pytest

from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.testing import until


async def test_a_cancellation_is_raised_when_all_of_the_work_is_done() -> None:
    done: list[int] = []
    gate = asyncio.Event()

    async def work() -> None:
        with Unbroken() as unbroken:
            for piece in range(3):
                await unbroken.wait(gate.wait())
                done.append(piece)

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    for _ in range(2):
        working.cancel()
        await asyncio.sleep(0)
    assert not working.done()
    gate.set()
    await until(working.done)
    assert (working.cancelled(), done) == (True, [0, 1, 2])


async def test_an_error_in_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), Unbroken() as unbroken:
        await unbroken.wait(work())
