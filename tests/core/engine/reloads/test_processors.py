"""A processor is entered before batches arrive, and left after its last ones are out."""

from tests.core.engine.recording import Recording, reloading
from tests.core.engine.reloads.text import TEXT

OPENING = TEXT.replace("summer/b: ", "opening: {number: 1}, summer/b: ").replace(
    "[summer/a, summer/b]", "[summer/a, opening]"
)


async def test_a_processor_is_entered_before_the_receivers_run_and_left_before_the_exporters() -> None:
    async with reloading(TEXT) as running:
        Recording.events.clear()
        assert await running.reload(("summer/b: ", "opening: , summer/b: "), ("[summer/a, summer/b]", "[opening]"))
        assert running.events() == ["enter processors::opening"]
        running.stop.set()
        await running.task  # type: ignore[misc]
        left = [event for event in running.events() if event.startswith(("flush", "leave"))]
        assert left[:2] == ["flush processors::opening", "leave processors::opening"]
        assert "leave exporters::sink" in left[2:]


async def test_a_reload_flushes_a_processor_leaves_it_and_enters_the_next() -> None:
    async with reloading(OPENING) as running:
        assert await running.reload(("{number: 1}", "{number: 2}"))
        assert running.events() == [
            "flush processors::opening",
            "leave processors::opening",
            "enter processors::opening",
        ]
        Recording.feed(1)
        await running.receives(1)


async def test_a_processor_that_cannot_start_leaves_the_previous_configuration_running() -> None:
    async with reloading(TEXT) as running:
        Recording.refusing.add("processors::opening")
        assert not await running.reload(("summer/b: ", "opening: , summer/b: "), ("[summer/a, summer/b]", "[opening]"))
        Recording.feed(1)
        await running.receives(1000, 2000, 1)  # the sums that the two others flush, and the batch
