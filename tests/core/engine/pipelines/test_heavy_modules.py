"""A pipeline imports the heavy modules of its processors in a thread, before its first batch."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import ComponentConfig, Processor
from otel_zernel.engine.pipelines.pipeline import Stage
from otel_zernel.testing import make_context, until
from tests.core.engine.wiring import INSTRUMENTS, wiring
from tests.core.parts import Doubler, batch_of, values_of

MODULE = "heavy_module_of_a_test"
GATE = "gate_of_a_heavy_module"


class Heavy(Doubler):
    heavy_modules = (MODULE,)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Fails unless the module is imported, and was imported in another thread."""
        assert sys.modules[MODULE].thread != threading.get_ident()
        yield from super().process(batch)


class Lacking(Processor):
    heavy_modules = ("no_such_module",)

    def process(self, batch: Batch) -> Iterator[Batch]:
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401  # it does not exist

        yield batch


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The import of `MODULE` waits for this event."""
    gate = threading.Event()
    code = f"import sys, threading\nsys.modules['{GATE}'].wait(30)\nthread = threading.get_ident()\n"
    (tmp_path / f"{MODULE}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, GATE, gate)
    yield gate
    gate.set()
    sys.modules.pop(MODULE, None)


def stage(cls: type[Processor]) -> Stage:
    return Stage(cls(ComponentConfig(), make_context("processors")), INSTRUMENTS.processor("p", "pipeline"))


async def test_batches_wait_in_order_while_the_event_loop_goes_on(gate: threading.Event) -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        emit = it.emit_into(it.pipeline("p", [stage(Heavy)], [delivery]))
        emitting = [asyncio.create_task(emit(batch_of(value))) for value in (1.0, 2.0)]
        await until(lambda: MODULE in sys.modules)  # the import has begun, and waits
        assert not any(one.done() for one in emitting)
        gate.set()
        await asyncio.gather(*emitting)
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [2.0, 4.0]


async def test_a_batch_that_is_cancelled_meanwhile_is_not_accepted(gate: threading.Event) -> None:
    async with wiring() as it:
        delivery = await it.delivery()
        emit = it.emit_into(it.pipeline("p", [stage(Heavy)], [delivery]))
        emitting = asyncio.create_task(emit(batch_of(1.0)))
        await until(lambda: MODULE in sys.modules)
        emitting.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await emitting
        await emit(batch_of(3.0))
        await delivery.drain()
        assert values_of(it.sinks[0].batches) == [6.0]
        assert emit.accepted.total == 1


async def test_a_module_that_cannot_be_imported_is_the_error_of_each_batch() -> None:
    async with wiring() as it:
        lacking = stage(Lacking)
        emit = it.emit_into(it.pipeline("p", [lacking], [await it.delivery()]))
        await emit(batch_of(1.0))
        await emit(batch_of(2.0))
        assert lacking.processor.context.drop.counts == {"processor_error": 2}  # type: ignore[attr-defined]  # `Dropped`
