"""The attributes processor."""

from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from typing import Any

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.component import ITEMS_AT_ONCE, PAUSE, Context, Processor
from otel_zernel_libraries.attributes import AttributeChanges, changes_by, compiled, names_used_by, write
from otel_zernel_libraries.conditions import LAYOUTS, Item, selection_test
from otel_zernel_libraries.conditions import Context as ItemContext
from otel_zernel_processors.attributes.config import AttributesConfig

_ITEMS_UNTIL_PAUSE = 50
_CONTEXTS: Mapping[Signal, ItemContext] = {"metrics": "datapoint", "traces": "span", "logs": "log"}


class AttributesProcessor(Processor):
    """Adds, changes, hashes, extracts and removes attributes of data points, spans and log records."""

    Config = AttributesConfig
    stability = "beta"
    items_at_once = ITEMS_AT_ONCE

    def __init__(self, config: AttributesConfig, context: Context) -> None:
        super().__init__(config, context)
        self._act, self._names = compiled(config.actions), names_used_by(config.actions)
        self._selects = {signal: selection_test(config.include, config.exclude, signal) for signal in SIGNALS}

    def process(self, batch: Batch) -> Iterator[Batch]:
        """The batch, edited only if an attribute changes. Yields `PAUSE` between pieces of work."""
        for signal in batch.signals:
            changes = yield from self._changes(batch, signal)
            if changes:
                yield from _write_all(batch.edit(signal), signal, changes)
        yield batch

    def _changes(self, batch: Batch, signal: Signal) -> Generator[Batch, None, dict[int, AttributeChanges]]:
        """The changes of each item, by its number in the message."""
        found: dict[int, AttributeChanges] = {}
        selects, item = self._selects[signal], Item()
        for number, one in enumerate(LAYOUTS[signal].walk(batch.message(signal), _CONTEXTS[signal], item)):
            if (selects is None or selects(item)) and (changes := changes_by(self._act, self._names, one)):
                found[number] = changes
            if number % _ITEMS_UNTIL_PAUSE == _ITEMS_UNTIL_PAUSE - 1:
                yield PAUSE
        return found


def _write_all(message: Any, signal: Signal, changes: dict[int, AttributeChanges]) -> Iterator[Batch]:
    items = enumerate(LAYOUTS[signal].walk(message, _CONTEXTS[signal], Item()))
    while some := list(islice(items, _ITEMS_UNTIL_PAUSE)):
        for number, item in some:
            if number in changes:
                write(item, changes[number])
        yield PAUSE
