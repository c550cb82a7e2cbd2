"""Batches that take long to parse are parsed before a component reads them: the event loop goes on meanwhile."""

from collections.abc import Collection, Iterable, Iterator

import pytest

from otel_zernel.batch import Batch, Signal
from otel_zernel.batch.parsing import LARGE
from otel_zernel.component import ComponentConfig, Processor
from tests.core.engine.wiring import stage_of, wiring
from tests.core.parts import batch_of
from tests.receivers.damaged_texts import damaged_metrics

DAMAGED = Batch.from_bytes(metrics=damaged_metrics("name"))
BATCHES = pytest.mark.parametrize(
    "batch",
    [DAMAGED, batch_of(*map(float, range(LARGE // 20)))],
    ids=["damaged", "large"],
)


class Reader(Processor):
    """Notes whether reading costs little."""

    Config = ComponentConfig
    stability = "alpha"
    seen: list[bool]

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.seen = [batch.is_readable()]
        return (batch,)


class Forwarder(Reader):
    """Reads nothing."""

    @property
    def reads(self) -> Collection[Signal]:
        return ()


@BATCHES
async def test_a_processor_gets_a_readable_batch(batch: Batch) -> None:
    given = Batch.from_bytes(metrics=batch.bytes_of("metrics"))
    assert not given.is_readable()
    async with wiring() as it:
        delivery, stage = await it.delivery(), stage_of(Reader)
        await it.emit_into(it.pipeline("p", [stage], [delivery]))(given)
        assert isinstance(stage.processor, Reader)
        assert stage.processor.seen == [True]


async def test_a_processor_that_reads_nothing_gets_the_received_bytes() -> None:
    given = Batch.from_bytes(metrics=damaged_metrics("name"))
    async with wiring() as it:
        delivery, stage = await it.delivery(), stage_of(Forwarder)
        await it.emit_into(it.pipeline("p", [stage], [delivery]))(given)
        assert isinstance(stage.processor, Reader)
        assert stage.processor.seen == [False]
        await delivery.drain()
        assert [one.bytes_of("metrics") for one in it.sinks[0].batches] == [damaged_metrics("name")]


@BATCHES
async def test_a_batch_that_an_exporter_prepares_is_readable(batch: Batch) -> None:
    seen = []

    def prepare(prepared: Batch, *, dropped: bool) -> Iterator[Batch]:
        seen.append(prepared.is_readable())
        yield prepared

    async with wiring() as it:
        delivery = await it.delivery()
        it.sinks[0].prepares = lambda batch: True  # type: ignore[method-assign]
        it.sinks[0].prepare = prepare  # type: ignore[method-assign, assignment]
        await it.emit_into(it.pipeline("p", [], [delivery]))(Batch.from_bytes(metrics=batch.bytes_of("metrics")))
    assert seen == [True]
