"""The components that a configuration uses, constructed and connected. Nothing is started here."""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from opentelemetry.metrics import MeterProvider

from otel_zernel.batch import ALL_SIGNALS, Signal
from otel_zernel.clock import Clock
from otel_zernel.component import (
    Context,
    Emit,
    Exporter,
    Extension,
    Kind,
    Processor,
    Receiver,
    Scraper,
)
from otel_zernel.config.schema import ComponentSettings, PipelineSettings, Settings
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.lifetime import starting
from otel_zernel.engine.pipeline import FanOut, Pipeline, Stage
from otel_zernel.engine.queues import memory_share
from otel_zernel.engine.receivers import SupervisedReceiver
from otel_zernel.engine.scraping import ScrapeLoop
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
        self._locks = locks_of(settings.pipelines.values())
        self.extensions: dict[str, Extension] = {}
        for id_ in settings.extensions_enabled:
            self.extensions[id_] = self._build("extensions", settings.extensions[id_])
        exporters = _used(settings, lambda pipeline: pipeline.exporters)
        self._memory_share = memory_share(len(exporters))
        self.deliveries = {id_: self._delivery(settings.exporters[id_]) for id_ in exporters}
        self.pipelines = {id_: self._pipeline(pipeline) for id_, pipeline in settings.pipelines.items()}
        receivers = _used(settings, lambda pipeline: pipeline.receivers)
        self.receivers = [self._receiver(settings.receivers[id_]) for id_ in receivers]

    def _context(self, kind: Kind, id_: str, signals: frozenset[Signal] = ALL_SIGNALS) -> Context:
        return Context(
            kind=kind,
            id=id_,
            logger=component_logger(kind, id_),
            meter=self._meters.get_meter(f"otel_zernel.{kind}.{id_}"),
            clock=self._clock,
            health=self.health,
            drop=self._instruments.dropper(kind, id_),
            signals=signals,
            extensions=MappingProxyType(self.extensions),
        )

    def _build(self, kind: Kind, component: ComponentSettings, signals: frozenset[Signal] = ALL_SIGNALS) -> Any:
        context = self._context(kind, component.id, signals)
        with starting(context.path):
            return component.cls(component.config, context)

    def _delivery(self, component: ComponentSettings) -> Delivery:
        exporter: Exporter = self._build("exporters", component)
        return Delivery(exporter, self._instruments.exporter(component.id), max_bytes=self._memory_share)

    def _pipeline(self, pipeline: PipelineSettings) -> Pipeline:
        stages = [self._stage(id_, pipeline) for id_ in pipeline.processors]
        deliveries = [self.deliveries[id_] for id_ in pipeline.exporters]
        return Pipeline(pipeline.id, stages, deliveries, pipeline.signals, self._locks[pipeline.id])

    def _stage(self, id_: str, pipeline: PipelineSettings) -> Stage:
        processor: Processor = self._build("processors", self._settings.processors[id_], pipeline.signals)
        return Stage(processor, self._instruments.processor(id_, pipeline.id))

    def _receiver(self, component: ComponentSettings) -> SupervisedReceiver:
        id_ = component.id
        pipelines = [self.pipelines[one.id] for one in self._settings.pipelines.values() if id_ in one.receivers]
        used = frozenset(chain.from_iterable(pipeline.used_signals for pipeline in pipelines))
        context = self._context("receivers", id_, used)

        async def run(emit: Emit) -> None:
            built = component.cls(component.config, context)
            if isinstance(built, Scraper):
                await ScrapeLoop(built, self._instruments.scraper(id_)).run(emit)
            elif isinstance(built, Receiver):
                await built.run(emit)

        fan_out = FanOut(pipelines, lru_cache(maxsize=None)(partial(self._instruments.receiver, id_)))
        return SupervisedReceiver(run, fan_out, context, partial(self._instruments.restarted, id_))


def locks_of(pipelines: Iterable[PipelineSettings]) -> dict[str, asyncio.Lock]:
    """A lock for each pipeline, by id. Pipelines that share a receiver or an exporter, directly or through other
    pipelines, have the same lock. Every pipeline has its own instances of processors, so these connect nothing."""
    groups: list[tuple[set[str], set[tuple[Kind, str]]]] = []
    for pipeline in pipelines:
        members: set[str] = {pipeline.id}
        ends: set[tuple[Kind, str]] = {("receivers", id_) for id_ in pipeline.receivers}
        ends |= {("exporters", id_) for id_ in pipeline.exporters}
        connected = [group for group in groups if group[1] & ends]
        groups = [group for group in groups if not group[1] & ends]
        groups.append((members.union(*(one for one, _ in connected)), ends.union(*(other for _, other in connected))))
    locks = [(members, asyncio.Lock()) for members, _ in groups]
    return {id_: lock for members, lock in locks for id_ in members}


def _used(settings: Settings, ids: Callable[[PipelineSettings], tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(id_ for pipeline in settings.pipelines.values() for id_ in ids(pipeline)))
