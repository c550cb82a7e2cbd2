"""An error or a hang of a component at its start or end is reported, and the collector goes on.

A cancellation does not leave work half done.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from otel_zernel.engine.lifetime import cancel_and_wait, opened
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.errors import CannotStart
from otel_zernel.testing import until


@asynccontextmanager
async def component(*, opening: Exception | None = None, closing: Exception | None = None) -> AsyncIterator[None]:
    if opening:
        raise opening
    yield
    if closing:
        raise closing


@asynccontextmanager
async def hanging() -> AsyncIterator[None]:
    yield
    await asyncio.Event().wait()


async def stubborn(release: asyncio.Event) -> None:
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


async def test_an_exception_at_the_start_becomes_a_message_with_the_path() -> None:
    with pytest.raises(CannotStart, match=r"^exporters::x: cannot start: ValueError: no such thing$"):
        async with opened(component(opening=ValueError("no such thing")), "exporters::x"):
            pass


async def test_a_components_own_message_stays_unchanged() -> None:
    with pytest.raises(CannotStart, match=r"^the port is taken$"):
        async with opened(component(opening=CannotStart("the port is taken")), "exporters::x"):
            pass


async def test_an_exception_while_closing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(component(closing=ValueError("half closed")), "exporters::x"):
        pass
    assert "exporters::x failed to close: ValueError: half closed" in caplog.text


async def test_a_component_that_hangs_while_closing_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(hanging(), "exporters::x", longest=0.02):
        pass
    assert "exporters::x did not close within 0.02 s; continuing without it" in caplog.text


async def test_a_task_that_ignores_cancellation_is_abandoned_and_named(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()
    task = asyncio.create_task(stubborn(release), name="receivers::x")
    await asyncio.sleep(0)
    await cancel_and_wait([task], longest=0.02)
    assert "receivers::x did not stop within 0.02 s; continuing without it" in caplog.text
    release.set()
    await task


async def test_the_error_of_a_failed_task_is_logged_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    task = asyncio.create_task(broken(), name="ticks")
    await asyncio.sleep(0)
    await cancel_and_wait([task])
    assert "ticks failed: ValueError: a bug" in caplog.text


async def test_a_task_whose_work_must_not_be_left_half_done_is_awaited_to_its_end() -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            with Unbroken() as unbroken:
                await unbroken.wait(gate.wait())
        finally:
            ended.set()  # as a receiver that closes its port

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    stopping = asyncio.create_task(cancel_and_wait([working], longest=0.001))
    await asyncio.sleep(0.01)
    assert not stopping.done()
    gate.set()
    await stopping
    assert ended.is_set()


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
