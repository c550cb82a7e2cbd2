"""Components that record their life, and a service of them that reloads."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Component, ComponentConfig, Context, Emit, Extension, Processor, Receiver
from otel_zernel.engine.service import Outcome, Patience, Service
from otel_zernel.errors import CannotStart
from otel_zernel.testing import until
from tests.core.engine.journals import Disk, MemoryStorage
from tests.core.parts import PARTS, Parts, Sink, SinkConfig, batch_of, settings_of, values_of


class Recording:
    """The events of all components of one test, such as `enter exporters::sink`."""

    events: ClassVar[list[str]] = []
    feeds: ClassVar[dict[str, asyncio.Queue[Batch]]] = {}
    refusing: ClassVar[set[str]] = set()
    """The paths of components that cannot start now."""
    hanging: ClassVar[set[str]] = set()
    """The events that never end, such as `leave exporters::sink`."""

    @classmethod
    def reset(cls) -> None:
        for collection in (cls.events, cls.feeds, cls.refusing, cls.hanging):
            collection.clear()

    @classmethod
    def feed(cls, *values: float, receiver: str = "feed") -> None:
        for value in values:
            cls.feeds[receiver].put_nowait(batch_of(value))

    @classmethod
    async def happens(cls, event: str, component: Component) -> None:
        """Records an event of a component, and fails or hangs if the test asked for it."""
        path = component.context.path
        cls.events.append(f"{event} {path}")
        if event in ("enter", "run") and path in cls.refusing:
            raise CannotStart(f"{path}: the port is taken")
        if f"{event} {path}" in cls.hanging:
            await asyncio.Event().wait()


class NumberConfig(ComponentConfig):
    number: int = 0


class Feed(Receiver):
    """Emits the batches that the test feeds to it."""

    Config = NumberConfig

    async def run(self, emit: Emit) -> None:
        feed = Recording.feeds.setdefault(self.context.id, asyncio.Queue())
        await Recording.happens("run", self)
        while True:
            batch = await feed.get()
            await emit(batch)
            feed.task_done()


class RecordedSinkConfig(SinkConfig):
    endpoint: str = ""
    down: bool = False
    store: str = ""


class RecordedSink(Sink):
    """A sink with one list of batches for all instances of its id. `down` makes every export hang."""

    Config = RecordedSinkConfig
    received: ClassVar[dict[str, list[Batch]]] = {}

    def __init__(self, config: RecordedSinkConfig, context: Any) -> None:
        super().__init__(config, context)
        self.batches = self.received.setdefault(context.id, [])
        context.kept["instances"] = self.instances = context.kept.get("instances", 0) + 1
        if config.down:
            self.gate = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self.config.store:
            self.context.extension(self.config.store)
        await Recording.happens("enter", self)
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await Recording.happens("leave", self)


class Store(Extension):
    Config = NumberConfig

    async def __aenter__(self) -> Self:
        await Recording.happens("enter", self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await Recording.happens("leave", self)


class Disks(MemoryStorage):
    """A storage with the same disks for all instances."""

    Config = NumberConfig
    shared: ClassVar[dict[str, Disk]] = {}

    def __init__(self, config: NumberConfig, context: Context) -> None:
        super().__init__(config, context)
        self.disks = self.shared


class Summer(Processor):
    """Adds `number` to nothing, forwards each batch, and emits the sum of all values when it is flushed."""

    Config = NumberConfig

    def __init__(self, config: NumberConfig, context: Any) -> None:
        super().__init__(config, context)
        self.total = 0.0
        self.flushed = False

    def process(self, batch: Batch) -> Iterable[Batch]:
        self.total += sum(values_of([batch]))
        return [batch]

    def flush(self) -> Iterable[Batch]:
        if self.flushed:
            return []
        self.flushed = True
        return [batch_of(1000 + self.total)]


class Opening(Processor):
    """Forwards each batch. Records its life."""

    Config = NumberConfig

    async def __aenter__(self) -> Self:
        await Recording.happens("enter", self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await Recording.happens("leave", self)

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch]

    def flush(self) -> Iterable[Batch]:
        Recording.events.append(f"flush {self.context.path}")
        return []


class Passing(Processor):
    """Forwards each batch."""

    Config = NumberConfig

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch]


class Ticking(Processor):
    """Emits 1 at each tick, every 50 ms."""

    interval = 0.05

    def process(self, batch: Batch) -> Iterable[Batch]:
        return [batch]

    def tick(self, now_ns: int) -> Iterable[Batch]:
        return [batch_of(1.0)]


RECORDED: Parts = {
    "receivers": {**PARTS["receivers"], "feed": Feed},
    "processors": {**PARTS["processors"], "summer": Summer, "ticking": Ticking, "passing": Passing, "opening": Opening},
    "exporters": {"sink": RecordedSink},
    "extensions": {"store": Store, "memory": Disks},
}


class Reloading:
    """A running service, and its configuration as text."""

    def __init__(self, text: str, patience: Patience | None = None) -> None:
        Recording.reset()
        RecordedSink.received.clear()
        Disks.shared.clear()
        self.text = text
        self.service = Service(settings_of(text, RECORDED), patience=patience)
        self.stop = asyncio.Event()
        self.task: asyncio.Task[Outcome] | None = None

    async def reload(self, *changes: tuple[str, str]) -> bool:
        """Replaces parts of the text, and reloads. Keeps the text only if the reload succeeded."""
        text = self.text
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        in_use = await self.service.reload(settings_of(text, RECORDED))
        self.text = text if in_use else self.text
        return in_use

    def events(self) -> list[str]:
        """The events since the last call."""
        events = [*Recording.events]
        Recording.events.clear()
        return events

    def received(self, sink: str = "sink") -> list[float]:
        return values_of(RecordedSink.received.get(sink, []))

    def waiting(self, sink: str = "sink") -> int:
        """The number of items that the sink has not got."""
        counts = self.service.undelivered()
        return counts[sink].total if sink in counts else 0

    async def receives(self, *values: float, sink: str = "sink") -> None:
        """Returns when the sink has received these values, in this order."""
        try:
            await until(lambda: len(self.received(sink)) >= len(values))
        finally:
            assert self.received(sink) == list(values)


@asynccontextmanager
async def reloading(text: str, patience: Patience | None = None) -> AsyncIterator[Reloading]:
    """A service that runs the text. Stopped at the end."""
    one = Reloading(text, patience)
    one.task = asyncio.create_task(one.service.run(one.stop))
    try:
        await until(lambda: one.task.done() or one.service.graph.health.up_since)  # type: ignore[union-attr]
        await asyncio.sleep(0)
        one.events()
        yield one
    finally:
        Recording.hanging.clear()
        one.stop.set()
        await one.task
