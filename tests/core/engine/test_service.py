"""A service starts downstream first, survives its receivers, drains at its end and says what it could not deliver."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, Self

import pytest

from otel_zernel.component import BOTH, Component, Context, Emit, Extension, Kind, Receiver, Signal
from otel_zernel.config.schema import Settings
from otel_zernel.engine import lifetime
from otel_zernel.engine.graph import Graph, locks_of
from otel_zernel.engine.service import Outcome, Service
from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, make_context, until
from tests.core.parts import PARTS, Parts, Sink, SinkConfig, Source, batch_of, settings_of, values_of

PIPELINE = """
receivers: {source: {values: [1, 2, 3]}}
processors: {doubler: }
exporters: {sink: }
service: {pipelines: {training: {receivers: [source], processors: [doubler], exporters: [sink]}}}
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Source.crashes = 0
    yield
    Source.crashes = 0


def graph_of(service: Service) -> Graph:
    assert service.graph is not None
    return service.graph


def sink_of(service: Service, id_: str = "sink") -> Sink:
    exporter = graph_of(service).deliveries[id_].exporter
    assert isinstance(exporter, Sink)
    return exporter


class Closed(Sink):
    """Keeps every batch waiting."""

    def __init__(self, config: SinkConfig, context: Context) -> None:
        super().__init__(config, context)
        self.gate = asyncio.Event()


def settings_with(
    cls: type[Component], kind: Kind = "receivers", id_: str = "source", text: str = PIPELINE
) -> Settings:
    """The settings, with another class behind one of the components."""
    settings = settings_of(text)
    object.__setattr__(getattr(settings, kind)[id_], "cls", cls)
    return settings


@asynccontextmanager
async def running(text: str) -> AsyncIterator[tuple[Service, asyncio.Event, asyncio.Task[Outcome]]]:
    service, stop = Service(settings_of(text), FakeClock()), asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        await until(lambda: task.done() or (service.graph and service.graph.health.up_since))
        yield service, stop, task
    finally:
        stop.set()
        await task


class Asking(Source):
    """Keeps what it is told it may make."""

    told: ClassVar[list[frozenset[Signal]]] = []

    async def run(self, emit: Emit) -> None:
        self.told.append(self.context.signals)


class MetricsSink(Sink):
    signals = frozenset({"metrics"})


@pytest.mark.parametrize(
    ("pipelines", "exporter", "wanted"),
    [
        ("{training: {receivers: [source], exporters: [sink]}}", Sink, {"metrics", "traces"}),
        ("{training: {receivers: [source], exporters: [sink]}}", MetricsSink, {"metrics"}),
        ("{training: {receivers: [source], processors: [doubler], exporters: [sink]}}", MetricsSink, BOTH),
        ("{metrics: {receivers: [source], exporters: [sink]}}", Sink, {"metrics"}),
        ("{traces: {receivers: [source], exporters: [sink]}}", Sink, {"traces"}),
        (
            "{metrics: {receivers: [source], exporters: [sink]}, traces: {receivers: [source], exporters: [sink]}}",
            Sink,
            BOTH,
        ),
    ],
)
async def test_a_receiver_is_told_which_signals_something_takes(
    pipelines: str, exporter: type[Sink], wanted: set[Signal]
) -> None:
    head = "receivers: {source: }\nprocessors: {doubler: }\nexporters: {sink: }\n"
    settings = settings_with(Asking, text=f"{head}service: {{pipelines: {pipelines}}}")
    object.__setattr__(settings.exporters["sink"], "cls", exporter)
    Asking.told.clear()
    await Service(settings, FakeClock()).run(asyncio.Event(), exit_when_done=True)
    assert Asking.told == [wanted]


SHARED = """
receivers: {source/a: , source/b: , source/c: , source/d: , source/e: }
processors: {doubler: }
exporters: {sink/a: , sink/b: , sink/c: , sink/d: }
service:
  pipelines:
    one: {receivers: [source/a], processors: [doubler], exporters: [sink/a]}
    two: {receivers: [source/b], exporters: [sink/b]}
    alone: {receivers: [source/c], processors: [doubler], exporters: [sink/c]}
    joint: {receivers: [source/a, source/d], exporters: [sink/b]}
    pair: {receivers: [source/e], exporters: [sink/d]}
    other: {receivers: [source/e], exporters: [sink/d]}
"""


def test_pipelines_that_a_receiver_or_an_exporter_connects_share_one_lock() -> None:
    locks = locks_of(settings_of(SHARED).pipelines.values())
    groups = {frozenset(id_ for id_, lock in locks.items() if lock is one) for one in locks.values()}
    assert groups == {frozenset({"one", "two", "joint"}), frozenset({"alone"}), frozenset({"pair", "other"})}


class Storage(Extension):
    """An extension that another component looks up."""


async def test_a_component_finds_an_enabled_extension_by_its_id() -> None:
    class Storing(Sink):
        async def __aenter__(self) -> Self:
            self.storage = self.context.extension("storage/disk")
            return self

    text = PIPELINE.replace("service: {", "extensions: {storage/disk: }\nservice: {extensions: [storage/disk], ")
    parts: Parts = {**PARTS, "exporters": {"sink": Storing}, "extensions": {"storage": Storage}}
    service = Service(settings_of(text, parts), FakeClock())
    assert (await service.run(asyncio.Event(), exit_when_done=True)).complete
    sink = sink_of(service)
    assert isinstance(sink, Storing)
    assert sink.storage is graph_of(service).extensions["storage/disk"]


def test_an_extension_that_is_not_enabled_is_named_with_the_remedy() -> None:
    context = make_context("exporters", "sink")
    expected = "exporters::sink: extension storage/disk is not enabled; add it to service::extensions (enabled: none)"
    with pytest.raises(CannotStart, match=re.escape(expected)):
        context.extension("storage/disk")


async def test_a_finite_run_ends_by_itself_with_everything_delivered() -> None:
    service = Service(settings_of(PIPELINE), FakeClock())
    outcome = await service.run(asyncio.Event(), exit_when_done=True)
    assert outcome.complete
    assert sorted(values_of(sink_of(service).batches)) == [2.0, 4.0, 6.0]
    assert sink_of(service).left


async def test_without_exit_when_done_it_stays_up_after_the_last_receiver() -> None:
    async with running(PIPELINE) as (service, stop, task):
        await until(lambda: len(sink_of(service).batches) == 3)
        await asyncio.sleep(0.01)
        assert not task.done()
        assert graph_of(service).health.up_since is not None
        stop.set()
        assert (await task).complete
        assert graph_of(service).health.up_since is None


async def test_what_processors_hold_is_flushed_at_the_end() -> None:
    service = Service(settings_of(PIPELINE.replace("doubler", "keeper")), FakeClock())
    assert (await service.run(asyncio.Event(), exit_when_done=True)).complete
    assert sorted(values_of(sink_of(service).batches)) == [1.0, 2.0, 3.0]


async def test_a_crashed_receiver_restarts_and_is_visible_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    text = PIPELINE.replace("{values: [1, 2, 3]}", "{values: [1], fail_first: 3}")
    service = Service(settings_of(text), FakeClock())
    with caplog.at_level(logging.ERROR, "otel_zernel"):
        outcome = await service.run(asyncio.Event(), exit_when_done=True)
    assert outcome.complete
    assert values_of(sink_of(service).batches) == [2.0]
    waits = [record.getMessage() for record in caplog.records if "restarts in" in record.getMessage()]
    assert [wait.partition("restarts in ")[2].partition(" s")[0] for wait in waits] == ["1", "2", "4"]
    assert graph_of(service).health.problems == {}


async def test_stopping_delivers_what_is_queued_within_the_shutdown_timeout() -> None:
    async with running(PIPELINE) as (service, stop, task):
        sink = sink_of(service)
        sink.gate = asyncio.Event()
        stop.set()
        await asyncio.sleep(0.01)
        sink.gate.set()
        assert (await task).complete


async def test_what_could_not_be_delivered_is_said_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    text = PIPELINE.replace("service: {", "service: {shutdown_timeout: 20ms, ")
    async with running(text) as (service, stop, task):
        await until(lambda: len(sink_of(service).batches) == 3)
        sink_of(service).gate = asyncio.Event()
        graph_of(service).deliveries["sink"].put(batch_of(1.0, 2.0))
        with caplog.at_level(logging.ERROR, "otel_zernel"):
            stop.set()
            outcome = await task
        assert outcome == Outcome(undelivered=2, lost=0)
        assert "Exporter sink could not deliver 2 metric points and 0 spans." in caplog.text
        assert sink_of(service).left


async def test_what_was_given_up_is_said_and_makes_the_outcome_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    text = PIPELINE.replace("{sink: }", "{sink: {fails: 1000, retry_on_failure: {max_elapsed_time: 20s}}}")
    service = Service(settings_of(text), FakeClock())
    assert await service.run(asyncio.Event(), exit_when_done=True) == Outcome(undelivered=0, lost=3)
    assert "Exporter sink dropped 3 metric points and spans since its start." in caplog.text


async def test_a_batch_run_that_is_told_to_stop_drains_within_the_shutdown_timeout() -> None:
    text = PIPELINE.replace("service: {", "service: {shutdown_timeout: 20ms, ")
    service, stop = Service(settings_with(Closed, "exporters", "sink", text), FakeClock()), asyncio.Event()
    running = asyncio.create_task(service.run(stop, exit_when_done=True))
    await until(lambda: service.graph and service.graph.receivers[0].fan_out.accepted_points == 3)
    await until(lambda: graph_of(service).health.up_since is None)
    assert not running.done()
    stop.set()
    assert await running == Outcome(undelivered=3, lost=0)


async def test_a_receiver_that_ignores_cancellation_does_not_keep_the_rest_from_being_delivered(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime, "LONGEST_END", 0.02)
    released = asyncio.Event()

    class Stubborn(Receiver):
        async def run(self, emit: Emit) -> None:
            await emit(batch_of(1.0))
            while not released.is_set():
                with suppress(asyncio.CancelledError):
                    await released.wait()

    service, stop = Service(settings_with(Stubborn), FakeClock()), asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    await until(lambda: service.graph and sink_of(service).attempts)
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


async def test_a_component_that_breaks_at_the_start_is_a_sentence_with_its_path() -> None:
    class Broken(Sink):
        async def __aenter__(self) -> Self:
            raise KeyError("endpoint")

    service = Service(settings_with(Broken, "exporters", "sink"), FakeClock())
    with pytest.raises(CannotStart, match="exporters::sink: cannot start: KeyError: 'endpoint'"):
        await service.run(asyncio.Event())


async def test_what_others_had_accepted_when_one_cannot_start_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Late(Receiver):
        async def run(self, emit: Emit) -> None:
            await until(lambda: sink_of(service).attempts == 3)
            raise CannotStart("no such file")

    text = PIPELINE.replace("receivers: {s", "receivers: {source/late: , s").replace(
        "[source]", "[source, source/late]"
    )
    settings = settings_with(Late, id_="source/late", text=text)
    object.__setattr__(settings.exporters["sink"], "cls", Closed)
    service = Service(settings, FakeClock())
    with pytest.raises(CannotStart, match="no such file"):
        await service.run(asyncio.Event())
    assert "Exporter sink could not deliver 3 metric points and 0 spans." in caplog.text


async def test_a_receiver_that_cannot_start_stops_the_service_with_its_sentence() -> None:
    class Broken(Receiver):
        async def run(self, emit: Emit) -> None:
            raise CannotStart("receivers::source: no file matches /nowhere/*.csv")

    service = Service(settings_with(Broken), FakeClock())
    with pytest.raises(CannotStart, match="no file matches"):
        await service.run(asyncio.Event())
    assert sink_of(service).left


async def test_a_receiver_in_several_pipelines_feeds_each() -> None:
    text = """
receivers: {source: , source/other: {values: [7]}}
processors: {doubler: }
exporters: {sink: , sink/second: }
service:
  pipelines:
    first: {receivers: [source, source/other], exporters: [sink, sink/second]}
    second: {receivers: [source], processors: [doubler], exporters: [sink/second]}
"""
    service = Service(settings_of(text), FakeClock())
    assert (await service.run(asyncio.Event(), exit_when_done=True)).complete
    assert sorted(values_of(sink_of(service).batches)) == [1.0, 2.0, 3.0, 7.0]
    assert sorted(values_of(sink_of(service, "sink/second").batches)) == [1.0, 2.0, 2.0, 3.0, 4.0, 6.0, 7.0]


async def test_a_scraper_is_scraped() -> None:
    async with running(PIPELINE.replace("source", "thermometer").replace("{values: [1, 2, 3]}", "")) as (service, *_):
        await until(lambda: len(sink_of(service).batches) > 3)
        assert values_of(sink_of(service).batches)[0] == 40.0
