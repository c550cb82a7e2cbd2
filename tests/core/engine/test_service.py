"""A service starts downstream first, restarts its receivers, drains at its end and logs undelivered items."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import pytest

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Receiver
from otel_zernel.engine.lifetime import LONGEST_END
from otel_zernel.engine.service import Outcome, Service
from otel_zernel.errors import CannotStart
from otel_zernel.health import REPEATED
from otel_zernel.testing import FakeClock, until
from tests.core.engine.wiring import PIPELINE, other_tasks_run, settings_with, sink_of
from tests.core.parts import Keeper, Sink, SinkConfig, Source, batch_of, settings_of, values_of


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Source.crashes = 0
    yield
    Source.crashes = 0


class Blocked(Sink):
    """A sink that never finishes an export."""

    def __init__(self, config: SinkConfig, context: Context) -> None:
        super().__init__(config, context)
        self.gate = asyncio.Event()


@asynccontextmanager
async def running(text: str) -> AsyncIterator[tuple[Service, asyncio.Event, asyncio.Task[Outcome]]]:
    service, stop = Service(settings_of(text), FakeClock()), asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        await until(lambda: task.done() or service.graph.health.up_since)
        yield service, stop, task
    finally:
        stop.set()
        await task


async def test_the_running_exporter_is_known_by_its_id() -> None:
    service = Service(settings_of(PIPELINE), FakeClock())
    with pytest.raises(LookupError, match=r'^no exporter "sink" runs; running exporters: none$'):
        service.exporter("sink")
    await service.run(asyncio.Event(), exit_when_done=True)
    assert isinstance(service.exporter("sink"), Sink)
    with pytest.raises(LookupError, match=r'^no exporter "other" runs; running exporters: sink$'):
        service.exporter("other")


async def test_a_finite_run_ends_by_itself_with_all_data_delivered() -> None:
    service = Service(settings_of(PIPELINE), FakeClock())
    outcome = await service.run(asyncio.Event(), exit_when_done=True)
    assert outcome.complete
    assert sorted(values_of(sink_of(service).batches)) == [2.0, 4.0, 6.0]
    assert sink_of(service).left


async def test_without_exit_when_done_it_stays_up_after_the_last_receiver() -> None:
    async with running(PIPELINE) as (service, stop, task):
        await until(lambda: len(sink_of(service).batches) == 3)
        await other_tasks_run()
        assert not task.done()
        assert service.graph.health.up_since is not None
        stop.set()
        assert (await task).complete
        assert service.graph.health.up_since is None


async def test_batches_that_processors_hold_are_flushed_at_the_end() -> None:
    service = Service(settings_of(PIPELINE.replace("doubler", "keeper")), FakeClock())
    assert (await service.run(asyncio.Event(), exit_when_done=True)).complete
    assert sorted(values_of(sink_of(service).batches)) == [1.0, 2.0, 3.0]


async def test_a_crashed_receiver_restarts_with_backoff_and_its_problem_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = PIPELINE.replace("{values: [1, 2, 3]}", "{values: [1], fail_first: 3}")
    service = Service(settings_of(text), FakeClock())
    with caplog.at_level(logging.ERROR, "otel_zernel"):
        outcome = await service.run(asyncio.Event(), exit_when_done=True)
    assert outcome.complete
    assert values_of(sink_of(service).batches) == [2.0]
    waits = [record.getMessage() for record in caplog.records if "restarts in" in record.getMessage()]
    assert [wait.partition("restarts in ")[2].partition(" s")[0] for wait in waits] == ["1", "2", "4"]
    assert service.graph.health.problems == {}


async def test_stopping_delivers_queued_batches_within_the_shutdown_timeout() -> None:
    async with running(PIPELINE) as (service, stop, task):
        sink = sink_of(service)
        sink.gate = asyncio.Event()
        stop.set()
        await other_tasks_run()
        sink.gate.set()
        assert (await task).complete


async def test_undelivered_items_are_logged_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    text = PIPELINE.replace("service: {", "service: {shutdown_timeout: 20ms, ")
    async with running(text) as (service, stop, task):
        await until(lambda: len(sink_of(service).batches) == 3)
        sink_of(service).gate = asyncio.Event()
        service.graph.deliveries["sink"].queue.put(batch_of(1.0, 2.0))
        with caplog.at_level(logging.ERROR, "otel_zernel"):
            stop.set()
            outcome = await task
        assert outcome == Outcome(undelivered=2, lost=0)
        assert "Exporter sink could not deliver 2 metric points: " in caplog.text
        assert sink_of(service).left


async def test_dropped_items_are_logged_and_make_the_outcome_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    text = PIPELINE.replace("{sink: }", "{sink: {fails: 1000, retry_on_failure: {max_elapsed_time: 20s}}}")
    service = Service(settings_of(text), FakeClock())
    assert await service.run(asyncio.Event(), exit_when_done=True) == Outcome(undelivered=0, lost=3)
    assert "Exporter sink has lost 3 metric points since its start: retries_exhausted" in caplog.text


@pytest.mark.parametrize(("reason", "lost"), [("out_of_order", 3), (REPEATED, 0)])
async def test_items_that_a_server_rejects_are_in_the_final_tally_and_repeated_ones_are_no_loss(
    reason: str, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Dropping(Sink):
        """Sends all batches, but not all of their points."""

        async def export(self, batch: Batch) -> None:
            await super().export(batch)
            self.context.drop(1, reason)

    service = Service(settings_with(Dropping, "exporters", "sink", PIPELINE), FakeClock())
    assert await service.run(asyncio.Event(), exit_when_done=True) == Outcome(undelivered=0, lost=lost)
    assert (f"Exporter sink has lost 3 items since its start: {reason}" in caplog.text) == bool(lost)
    assert ("has lost" in caplog.text) == bool(lost)


async def test_a_batch_run_that_is_stopped_drains_within_the_shutdown_timeout() -> None:
    text = PIPELINE.replace("service: {", "service: {shutdown_timeout: 20ms, ")
    service, stop = Service(settings_with(Blocked, "exporters", "sink", text), FakeClock()), asyncio.Event()
    running = asyncio.create_task(service.run(stop, exit_when_done=True))
    await until(
        lambda: "source" in service.graph.receivers and service.graph.receivers["source"].fan_out.accepted.points == 3
    )
    await until(lambda: service.graph.health.up_since is None)
    assert not running.done()
    stop.set()
    assert await running == Outcome(undelivered=3, lost=0)


class SlowKeeper(Keeper):
    """Works in a thread, and flushes for longer than the engine waits for tasks that hang."""

    items_at_once = 0
    flushes = True

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self.flushes:
            return super().process(batch)
        time.sleep(1.3 * LONGEST_END)
        return [batch]

    def flush(self) -> Iterable[Batch]:
        if self.held:
            time.sleep(1.3 * LONGEST_END)
        return super().flush()

    async def __aexit__(self, *_: object) -> None:
        assert not self.held, "it is left after its flush"


class SlowWorker(SlowKeeper):
    """Processes each batch for as long."""

    flushes = False


async def test_items_that_a_thread_still_holds_when_the_time_is_over_are_counted() -> None:
    text = PIPELINE.replace("doubler", "keeper").replace("service: {", "service: {shutdown_timeout: 20ms, ")
    settings = settings_with(SlowKeeper, "processors", "keeper", text)
    object.__setattr__(settings.exporters["sink"], "cls", Blocked)
    service, stop = Service(settings, FakeClock()), asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    await until(lambda: service.graph.receivers and service.graph.receivers["source"].fan_out.accepted.points == 3)
    stop.set()
    assert await running == Outcome(undelivered=3, lost=0)


async def test_a_batch_that_a_thread_works_on_at_the_stop_is_accepted_and_counted() -> None:
    text = PIPELINE.replace("[1, 2, 3]", "[1]").replace("doubler", "keeper")
    text = text.replace("service: {", "service: {shutdown_timeout: 20ms, ")
    service, stop = Service(settings_with(SlowWorker, "processors", "keeper", text), FakeClock()), asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    await until(lambda: service.graph.health.up_since)
    await other_tasks_run()
    stop.set()
    outcome = await running
    assert service.graph.receivers["source"].fan_out.accepted.points == 1
    assert len(values_of(sink_of(service).batches)) + outcome.undelivered == 1


async def test_a_receiver_that_ignores_cancellation_does_not_block_the_delivery_of_other_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    released = asyncio.Event()

    class Stubborn(Receiver):
        async def run(self, emit: Emit) -> None:
            await emit(batch_of(1.0))
            while not released.is_set():
                with suppress(asyncio.CancelledError):
                    await released.wait()

    service, stop = Service(settings_with(Stubborn), FakeClock()), asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    await until(lambda: "sink" in service.graph.deliveries and sink_of(service).attempts)
    stop.set()
    outcome = await running
    released.set()
    assert outcome.complete
    assert values_of(sink_of(service).batches) == [2.0]
    assert "receivers::source did not stop within" in caplog.text


async def test_a_receiver_that_cancels_itself_is_restarted() -> None:
    class Cancelling(Source):
        async def run(self, emit: Emit) -> None:
            if type(self).crashes < 2:
                type(self).crashes += 1
                raise asyncio.CancelledError
            await super().run(emit)

    Cancelling.crashes = 0
    service = Service(settings_with(Cancelling), FakeClock())
    assert (await service.run(asyncio.Event(), exit_when_done=True)).complete
    assert sorted(values_of(sink_of(service).batches)) == [2.0, 4.0, 6.0]


async def test_a_component_that_fails_at_the_start_is_reported_with_its_path() -> None:
    class Broken(Sink):
        async def __aenter__(self) -> Self:
            raise KeyError("endpoint")

    service = Service(settings_with(Broken, "exporters", "sink"), FakeClock())
    with pytest.raises(CannotStart, match="exporters::sink: cannot start: KeyError: 'endpoint'"):
        await service.run(asyncio.Event())


async def test_undelivered_items_are_logged_when_another_receiver_cannot_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Late(Receiver):
        async def run(self, emit: Emit) -> None:
            await until(lambda: sink_of(service).attempts == 3)
            raise CannotStart("no such file")

    text = PIPELINE.replace("receivers: {s", "receivers: {source/late: , s").replace(
        "[source]", "[source, source/late]"
    )
    settings = settings_with(Late, id_="source/late", text=text)
    object.__setattr__(settings.exporters["sink"], "cls", Blocked)
    service = Service(settings, FakeClock())
    with pytest.raises(CannotStart, match="no such file"):
        await service.run(asyncio.Event())
    assert "Exporter sink could not deliver 3 metric points: " in caplog.text


async def test_a_receiver_that_cannot_start_stops_the_service_with_its_message() -> None:
    class Broken(Receiver):
        async def run(self, emit: Emit) -> None:
            raise CannotStart("receivers::source: no file matches /nowhere/*.csv")

    service = Service(settings_with(Broken), FakeClock())
    with pytest.raises(CannotStart, match="no file matches"):
        await service.run(asyncio.Event())
    assert sink_of(service).left


async def test_the_collector_is_ready_when_the_servers_of_its_receivers_listen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Server(Receiver):
        serves = True

        async def run(self, emit: Emit) -> None:
            starting.set()
            await opened.wait()
            self.context.listening.set()
            await asyncio.Event().wait()

    caplog.set_level(logging.INFO)
    starting, opened, ready, stop = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    service = Service(settings_with(Server), FakeClock(), on_ready=ready.set)
    running = asyncio.create_task(service.run(stop))
    await starting.wait()
    await other_tasks_run()
    assert (service.graph.health.up_since, ready.is_set(), "Everything is ready" in caplog.text) == (None, False, False)
    opened.set()
    await ready.wait()
    assert service.graph.health.up_since is not None
    assert caplog.text.count("Everything is ready") == 1
    stop.set()
    await running


async def test_a_server_whose_port_is_taken_stops_the_collector_before_it_is_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Server(Receiver):
        serves = True

        async def run(self, emit: Emit) -> None:
            await other_tasks_run()
            raise CannotStart("receivers::source::endpoint: cannot listen on localhost:4317")

    caplog.set_level(logging.INFO)
    with pytest.raises(CannotStart, match="cannot listen"):
        await Service(settings_with(Server), FakeClock()).run(asyncio.Event())
    assert "Everything is ready" not in caplog.text


async def test_a_scraper_is_scraped() -> None:
    async with running(PIPELINE.replace("source", "thermometer").replace("{values: [1, 2, 3]}", "")) as (service, *_):
        await until(lambda: len(sink_of(service).batches) > 3)
        assert values_of(sink_of(service).batches)[0] == 40.0
