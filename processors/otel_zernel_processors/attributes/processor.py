"""The attributes processor."""

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from otel_zernel.attributes import AttributeChanges, changes_by, compiled, names_used_by, write
from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.component import PAUSE, Context, Processor
from otel_zernel.conditions import LAYOUTS, Item, Layout, selection_test
from otel_zernel_processors.attributes.config import AttributesConfig

_ITEMS_UNTIL_PAUSE = 50


class AttributesProcessor(Processor):
    """Adds, changes, hashes, extracts and removes attributes of data points, spans and log records."""

    Config = AttributesConfig
    stability = "beta"

    def __init__(self, config: AttributesConfig, context: Context) -> None:
        super().__init__(config, context)
        self._act, self._names = compiled(config.actions), names_used_by(config.actions)
        self._selects = {signal: selection_test(config.include, config.exclude, signal) for signal in SIGNALS}

    def process(self, batch: Batch) -> Iterator[Batch]:
        """The batch, edited only if an attribute changes. Yields `PAUSE` between pieces of work."""
        for signal in batch.signals:
            changes = yield from self._changes(batch, signal)
            if changes:
                yield from _write_all(batch.edit(signal), LAYOUTS[signal], changes)
        yield batch

    def _changes(self, batch: Batch, signal: Signal) -> Generator[Batch, None, dict[int, AttributeChanges]]:
        """The changes of each item, by its number in the message."""
        found: dict[int, AttributeChanges] = {}
        selects, item = self._selects[signal], Item()
        for number, one in enumerate(_items(batch.message(signal), LAYOUTS[signal], item)):
            if (selects is None or selects(item)) and (changes := changes_by(self._act, self._names, one)):
                found[number] = changes
            if number % _ITEMS_UNTIL_PAUSE == _ITEMS_UNTIL_PAUSE - 1:
                yield PAUSE
        return found


def _items(message: Any, layout: Layout, at: Item) -> Iterator[Any]:
    """Every data point, span or log record, with `at` standing at it."""
    for resource in layout.resources(message):
        at.resource = resource.resource
        for scope in layout.scopes(resource):
            at.scope = scope.scope
            for item in layout.items(scope):
                layout.enter(at, item)
                if layout.contexts[0] != "metric":
                    yield item
                    continue
                for point in layout.parts(item):
                    layout.enter_part(at, point)
                    yield point


def _write_all(message: Any, layout: Layout, changes: dict[int, AttributeChanges]) -> Iterator[Batch]:
    items = enumerate(_items(message, layout, Item()))
    while some := list(islice(items, _ITEMS_UNTIL_PAUSE)):
        for number, item in some:
            if number in changes:
                write(item, changes[number])
        yield PAUSE
