"""Every component of a configuration that a pipeline uses, constructed and wired; nothing here starts anything."""

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any

from opentelemetry.metrics import MeterProvider

from otel_zernel.clock import Clock
from otel_zernel.component import (
    BOTH,
    Context,
    Emit,
    Exporter,
    Extension,
    Kind,
    Processor,
    Receiver,
    Scraper,
    Signal,
)
from otel_zernel.config.schema import ComponentSettings, PipelineSettings, Settings
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.lifetime import starting
from otel_zernel.engine.pipeline import Entrance, Pipeline, Stage
from otel_zernel.engine.receivers import Supervised
from otel_zernel.engine.scraping import Scraping
from otel_zernel.health import Health
from otel_zernel.telemetry import Instruments
from otel_zernel.telemetry.logs import component_logger


class Graph:
    """The components of `settings`: extensions, deliveries (exporters), pipelines (processors), receivers."""

    def __init__(self, settings: Settings, meters: MeterProvider, instruments: Instruments, clock: Clock) -> None:
        self.health = Health()
        self._settings = settings
        self._meters = meters
        self._instruments = instruments
        self._clock = clock
        self._working = asyncio.Lock()
        self.extensions: list[Extension] = [
            self._build("extensions", settings.extensions[id_]) for id_ in settings.extensions_enabled
        ]
        exporters = _used(settings, lambda pipeline: pipeline.exporters)
        self.deliveries = {id_: self._delivery(settings.exporters[id_]) for id_ in exporters}
        self.pipelines = {id_: self._pipeline(pipeline) for id_, pipeline in settings.pipelines.items()}
        receivers = _used(settings, lambda pipeline: pipeline.receivers)
        self.receivers = [self._receiver(settings.receivers[id_]) for id_ in receivers]

    def _context(self, kind: Kind, id_: str, signals: frozenset[Signal] = BOTH) -> Context:
        return Context(
            kind=kind,
            id=id_,
            logger=component_logger(kind, id_),
            meter=self._meters.get_meter(f"otel_zernel.{kind}.{id_}"),
            clock=self._clock,
            health=self.health,
            drop=self._instruments.dropper(kind, id_),
            signals=signals,
        )

    def _build(self, kind: Kind, component: ComponentSettings, signals: frozenset[Signal] = BOTH) -> Any:
        context = self._context(kind, component.id, signals)
        with starting(context.path):
            return component.cls(component.config, context)

    def _delivery(self, component: ComponentSettings) -> Delivery:
        exporter: Exporter = self._build("exporters", component)
        return Delivery(exporter, self._instruments.exporter(component.id))

    def _pipeline(self, pipeline: PipelineSettings) -> Pipeline:
        stages = [self._stage(id_, pipeline) for id_ in pipeline.processors]
        deliveries = [self.deliveries[id_] for id_ in pipeline.exporters]
        return Pipeline(pipeline.id, stages, deliveries, pipeline.signals, self._working)

    def _stage(self, id_: str, pipeline: PipelineSettings) -> Stage:
        processor: Processor = self._build("processors", self._settings.processors[id_], pipeline.signals)
        return Stage(processor, self._instruments.processor(id_, pipeline.id))

    def _receiver(self, component: ComponentSettings) -> Supervised:
        metrics = self._instruments.receiver(component.id, component.cls.transport)
        feeding = [self.pipelines[one.id] for one in self._settings.pipelines.values() if component.id in one.receivers]
        wanted = frozenset(chain.from_iterable(pipeline.wanted for pipeline in feeding))
        context = self._context("receivers", component.id, wanted)

        async def run(emit: Emit) -> None:
            built = component.cls(component.config, context)
            if isinstance(built, Scraper):
                await Scraping(built, self._instruments.scraper(component.id)).run(emit)
            elif isinstance(built, Receiver):
                await built.run(emit)

        return Supervised(run, Entrance(feeding, metrics), context, lambda: self._instruments.restarted(component.id))


def _used(settings: Settings, ids: Callable[[PipelineSettings], tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(id_ for pipeline in settings.pipelines.values() for id_ in ids(pipeline)))
