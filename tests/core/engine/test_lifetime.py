"""Whatever a component does when it starts or stops, the collector says so and goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from otel_zernel.engine import lifetime
from otel_zernel.engine.lifetime import cancel_and_wait, opened
from otel_zernel.errors import CannotStart


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "LONGEST_END", 0.02)
    monkeypatch.setattr(lifetime, "LONGEST_CLOSING", 0.02)


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


async def test_whatever_is_raised_at_the_start_becomes_a_sentence_with_the_path() -> None:
    with pytest.raises(CannotStart, match=r"^exporters::x: cannot start: ValueError: no such thing$"):
        async with opened(component(opening=ValueError("no such thing")), "exporters::x"):
            pass


async def test_a_sentence_of_the_components_own_stays_as_it_is() -> None:
    with pytest.raises(CannotStart, match=r"^the port is taken$"):
        async with opened(component(opening=CannotStart("the port is taken")), "exporters::x"):
            pass


async def test_what_goes_wrong_when_closing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(component(closing=ValueError("half closed")), "exporters::x"):
        pass
    assert "exporters::x failed to close: ValueError: half closed" in caplog.text


async def test_a_component_that_hangs_when_closing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(hanging(), "exporters::x"):
        pass
    assert "exporters::x did not close within" in caplog.text


async def test_a_task_that_ignores_cancellation_is_left_behind_by_name(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()
    task = asyncio.create_task(stubborn(release), name="receivers::x")
    await asyncio.sleep(0)
    await cancel_and_wait([task])
    assert "receivers::x did not stop within" in caplog.text
    release.set()
    await task


async def test_a_task_that_failed_is_said_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    task = asyncio.create_task(broken(), name="ticks")
    await asyncio.sleep(0)
    await cancel_and_wait([task])
    assert "ticks failed: ValueError: a bug" in caplog.text
