"""Changed files become one reload, when they have settled."""

import asyncio
from contextlib import suppress

from otel_zernel.engine.process import watch
from otel_zernel.testing import FakeClock, until


class Files:
    """The results of the looks at the files, one after the other; the last one for ever."""

    def __init__(self, *looks: dict[str, str]) -> None:
        self.looks = list(looks)
        self.looked = 0
        self.reported: list[list[str]] = []

    def changed(self) -> dict[str, str]:
        self.looked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


async def reported(*looks: dict[str, str]) -> list[list[str]]:
    files = Files(*looks)
    watching = asyncio.create_task(watch(files.changed, files.reported.append, FakeClock()))
    await until(lambda: files.looked > len(looks) + 2)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    return files.reported


async def test_a_change_that_has_settled_is_reported_once() -> None:
    assert await reported({}, {"b": "1", "a": "1"}) == [["a", "b"]]


async def test_a_file_that_is_still_being_written_is_not_reported() -> None:
    assert await reported({"a": "1"}, {"a": "12"}, {"a": "123"}, {"a": "1234"}, {}) == []


async def test_the_same_refused_content_is_not_reported_again_but_the_next_change_is() -> None:
    one, other = {"a": "1"}, {"a": "2"}
    assert await reported(one, one, one, one, other, other, other) == [["a"], ["a"]]


async def test_a_change_that_was_read_meanwhile_may_come_again() -> None:
    one: dict[str, str] = {"a": "1"}
    assert await reported(one, one, {}, one, one, {}) == [["a"], ["a"]]


async def test_files_without_a_change_report_nothing() -> None:
    assert await reported({}, {}, {}) == []
