"""The components of a configuration, constructed and connected. Nothing is started here."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from otel_zernel.clock import Clock
from otel_zernel.component import Context, Emit, Exporter, Extension, Kind, Processor, Receiver, Scraper
from otel_zernel.config.schema import PipelineSettings, Settings
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.difference import Definition, Definitions, Place
from otel_zernel.engine.lifetime import starting
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.holding import HoldWatch
from otel_zernel.engine.pipelines.pipeline import Pipeline, Stage
from otel_zernel.engine.queues import memory_share
from otel_zernel.engine.receivers import SupervisedReceiver
from otel_zernel.engine.scraping import ScrapeLoop
from otel_zernel.health import Health
from otel_zernel.telemetry import ExporterMetrics, Instruments
from otel_zernel.telemetry.logs import component_logger
from otel_zernel.telemetry.metering import Measuring

Instance = Extension | Exporter | Stage | SupervisedReceiver
"""One constructed component, with its surroundings if it has some."""


class UsedExtensions(Mapping[str, Extension]):
    """The extensions, as one component sees them. Records the ids of those that it has looked up."""

    def __init__(self, extensions: Mapping[str, Extension]) -> None:
        self._extensions = extensions
        self.used: set[str] = set()

    def __getitem__(self, id_: str) -> Extension:
        self.used.add(id_)
        return self._extensions[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._extensions)

    def __len__(self) -> int:
        return len(self._extensions)


class Graph:
    """The running components: extensions, deliveries (exporters), pipelines of stages (processors), receivers.

    A reload replaces some of them, and connects the others anew.
    """

    def __init__(self, clock: Clock) -> None:
        self.health = Health()
        self.running: dict[Place, Definition] = {}
        """The definitions of the instances that are in use."""
        self.extensions: dict[str, Extension] = {}
        self.deliveries: dict[str, Delivery] = {}
        """By the id of the exporter. A delivery and its queue stay when a reload replaces the exporter."""
        self.stages: dict[Place, Stage] = {}
        self.pipelines: dict[str, Pipeline] = {}
        self.receivers: dict[str, SupervisedReceiver] = {}
        self._clock = clock
        self._memory_share = memory_share(1)
        self._uses: dict[Place, UsedExtensions] = {}
        self._kept: dict[Place, dict[str, Any]] = {}

    @property
    def uses(self) -> dict[Place, set[str]]:
        """The ids of the extensions that each running instance has looked up."""
        return {place: seen.used for place, seen in self._uses.items()}

    def build(self, wanted: Definitions, measuring: Measuring) -> dict[Place, Instance]:
        """Constructs instances, and changes nothing. Raises `CannotStart` if a constructor fails."""
        return {place: self._instance(place, definition, measuring) for place, definition in wanted.items()}

    def share_memory(self, wanted: Definitions) -> None:
        """Sets how much memory the queue of each exporter may take, of those that run and of those to come."""
        self._memory_share = memory_share(sum(place.kind == "exporters" for place in wanted))
        for delivery in self.deliveries.values():
            delivery.share_memory(self._memory_share)

    def adopt(self, place: Place, definition: Definition, instance: Instance, measuring: Measuring) -> None:
        """Puts an instance into its place, which must be empty. An exporter continues with the queue of its id."""
        self.running[place] = definition
        self.health.forget(place.path)
        self._uses[place] = _context(instance).extensions  # type: ignore[assignment]  # `_instance` made it
        if isinstance(instance, Extension):
            self.extensions[place.id] = instance
        elif isinstance(instance, Stage):
            self.stages[place] = instance
        elif isinstance(instance, SupervisedReceiver):
            self.receivers[place.id] = instance
        else:
            self._adopt_exporter(place.id, instance, measuring.instruments.exporter(place.id))

    def _adopt_exporter(self, id_: str, exporter: Exporter, metrics: ExporterMetrics) -> None:
        if delivery := self.deliveries.get(id_):
            delivery.replace(exporter, metrics, self._memory_share)
        else:
            self.deliveries[id_] = Delivery(exporter, metrics, max_bytes=self._memory_share)

    def release(self, place: Place) -> None:
        """Empties a place, and clears the component's problem. The delivery of an exporter stays."""
        self.running.pop(place, None)
        self._uses.pop(place, None)
        if stage := self.stages.pop(place, None):
            stage.thread.close()
        if place.kind == "extensions":
            self.extensions.pop(place.id, None)
        elif place.kind == "receivers" and (receiver := self.receivers.pop(place.id, None)):
            receiver.context.listening.set()  # nobody waits for it any more
        self.health.forget(place.path)

    def with_lifetime(self, place: Place) -> Extension | Delivery | Processor | None:
        """The object to enter before the instance in this place works, and to leave afterwards."""
        if place.kind == "extensions":
            return self.extensions[place.id]
        if place.kind == "processors":
            return self.stages[place].processor
        return self.deliveries[place.id] if place.kind == "exporters" else None

    def connect(self, settings: Settings) -> None:
        """Makes pipelines of the stages and deliveries, and sends the batches of the receivers into them.

        Must be called while `held`.
        """
        locks = locks_of(settings.pipelines.values())
        self.pipelines = {
            pipeline.id: self._pipeline(pipeline, locks[pipeline.id]) for pipeline in settings.pipelines.values()
        }
        for id_, receiver in self.receivers.items():
            pipelines = [
                self.pipelines[pipeline.id] for pipeline in settings.pipelines.values() if id_ in pipeline.receivers
            ]
            receiver.fan_out.connect(pipelines)
        for id_, delivery in self.deliveries.items():
            carried = [
                pipeline.signals & delivery.exporter.signals
                for pipeline in settings.pipelines.values()
                if id_ in pipeline.exporters
            ]
            named = (signals for signals in carried if len(signals) == 1)  # another pipeline may never carry some
            delivery.queue.expect({*chain(*named)}, {*chain(*carried)})
            delivery.consumers.wake()

    def take_unconnected(self) -> dict[str, Delivery]:
        """The deliveries without a pipeline, by id. They leave the graph."""
        connected = {delivery for pipeline in self.pipelines.values() for delivery in pipeline.deliveries}
        unconnected = {id_: delivery for id_, delivery in self.deliveries.items() if delivery not in connected}
        for id_ in unconnected:
            del self.deliveries[id_]
        return unconnected

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """No batch moves through the pipelines inside."""
        async with AsyncExitStack() as stack:
            for lock in dict.fromkeys(pipeline.lock for pipeline in self.pipelines.values()):
                await stack.enter_async_context(lock)
            yield

    def _instance(self, place: Place, definition: Definition, measuring: Measuring) -> Instance:
        context = Context(
            kind=place.kind,
            id=place.id,
            logger=component_logger(place.kind, place.id),
            meter=measuring.meters.get_meter(f"otel_zernel.{place.kind}.{place.id}"),
            clock=self._clock,
            health=self.health,
            drop=self.health.counted(place.path, measuring.instruments.dropper(place.kind, place.id)),
            signals=definition.signals,
            extensions=UsedExtensions(self.extensions),
            kept=self._kept.setdefault(place, {}),
        )
        if place.kind == "receivers":
            return _receiver(definition, context, measuring.instruments)
        with starting(context.path):
            built = definition.cls(definition.config, context)
        if isinstance(built, Processor):
            return Stage(built, measuring.instruments.processor(place.id, place.pipeline))
        assert isinstance(built, Extension | Exporter)  # noqa: S101  # the registry promises it
        return built

    def _pipeline(self, pipeline: PipelineSettings, lock: asyncio.Lock) -> Pipeline:
        stages = [self.stages[Place("processors", id_, pipeline.id)] for id_ in pipeline.processors]
        deliveries = [self.deliveries[id_] for id_ in pipeline.exporters]
        return Pipeline(pipeline.id, stages, deliveries, pipeline.signals, lock)


def _context(instance: Instance) -> Context:
    return instance.processor.context if isinstance(instance, Stage) else instance.context


def _receiver(definition: Definition, context: Context, instruments: Instruments) -> SupervisedReceiver:
    async def run(emit: Emit) -> None:
        built = definition.cls(definition.config, context)
        if isinstance(built, Scraper):
            await ScrapeLoop(built, instruments.scraper(context.id), lambda: fan_out.accepted.total).run(emit)
        elif isinstance(built, Receiver):
            await built.run(emit)

    if not (issubclass(definition.cls, Receiver) and definition.cls.serves):
        context.listening.set()
    metrics = lru_cache(maxsize=None)(partial(instruments.receiver, context.id))
    fan_out = FanOut((), metrics, HoldWatch(context))
    return SupervisedReceiver(run, fan_out, context, partial(instruments.restarted, context.id))


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
        groups.append((members.union(*(left for left, _ in connected)), ends.union(*(right for _, right in connected))))
    locks = [(members, asyncio.Lock()) for members, _ in groups]
    return {id_: lock for members, lock in locks for id_ in members}
