"""A graph connects the components of a configuration: pipelines, locks, contexts and extensions."""

import asyncio
import re
from typing import ClassVar, Self

import pytest

from otel_zernel.batch import STABLE_SIGNALS, Signal
from otel_zernel.component import Emit, Extension
from otel_zernel.engine.graph import locks_of
from otel_zernel.engine.service import Service
from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, make_context
from tests.core.engine.wiring import PIPELINE, settings_with, sink_of
from tests.core.parts import PARTS, Parts, Sink, Source, settings_of, values_of


class SignalRecorder(Source):
    """Records the signals in its context."""

    recorded: ClassVar[list[frozenset[Signal]]] = []

    async def run(self, emit: Emit) -> None:
        self.recorded.append(self.context.signals)


class MetricsSink(Sink):
    signals = frozenset({"metrics"})


@pytest.mark.parametrize(
    ("pipelines", "exporter", "used"),
    [
        ("{training: {receivers: [source], exporters: [sink]}}", Sink, {*STABLE_SIGNALS}),
        ("{training: {receivers: [source], exporters: [sink]}}", MetricsSink, {"metrics"}),
        ("{training: {receivers: [source], processors: [doubler], exporters: [sink]}}", MetricsSink, {*STABLE_SIGNALS}),
        ("{metrics: {receivers: [source], exporters: [sink]}}", Sink, {"metrics"}),
        ("{traces: {receivers: [source], exporters: [sink]}}", Sink, {"traces"}),
        ("{logs: {receivers: [source], exporters: [sink]}}", Sink, {"logs"}),
        (
            "{metrics: {receivers: [source], exporters: [sink]}, traces: {receivers: [source], exporters: [sink]}}",
            Sink,
            {"metrics", "traces"},
        ),
    ],
)
async def test_the_context_of_a_receiver_has_the_signals_that_its_pipelines_use(
    pipelines: str, exporter: type[Sink], used: set[Signal]
) -> None:
    head = "receivers: {source: }\nprocessors: {doubler: }\nexporters: {sink: }\n"
    settings = settings_with(SignalRecorder, text=f"{head}service: {{pipelines: {pipelines}}}")
    object.__setattr__(settings.exporters["sink"], "cls", exporter)
    SignalRecorder.recorded.clear()
    await Service(settings, FakeClock()).run(asyncio.Event(), exit_when_done=True)
    assert SignalRecorder.recorded == [used]


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
    assert sink.storage is service.graph.extensions["storage/disk"]


def test_an_extension_that_is_not_enabled_is_named_with_the_remedy() -> None:
    context = make_context("exporters", "sink")
    expected = "exporters::sink: extension storage/disk is not enabled; add it to service::extensions (enabled: none)"
    with pytest.raises(CannotStart, match=re.escape(expected)):
        context.extension("storage/disk")


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
