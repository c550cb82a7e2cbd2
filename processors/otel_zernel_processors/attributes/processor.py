"""The attributes processor."""

from collections.abc import Iterable, Mapping
from typing import Any

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import ITEMS_AT_ONCE, Context, Processor
from otel_zernel_libraries.attributes.actions import AttributeChanges, changes_by, compiled, names_used_by, write
from otel_zernel_libraries.conditions import LAYOUTS, Item, selection_test
from otel_zernel_libraries.conditions import Context as ItemContext
from otel_zernel_processors.attributes.config import AttributesConfig

_CONTEXTS: Mapping[Signal, ItemContext] = {"metrics": "datapoint", "traces": "span", "logs": "log"}


class AttributesProcessor(Processor):
    """Adds, changes, hashes, extracts and removes attributes of data points, spans and log records."""

    Config = AttributesConfig
    stability = "beta"
    items_at_once = ITEMS_AT_ONCE

    @classmethod
    def accepts(cls, config: AttributesConfig) -> frozenset[Signal]:
        """Those whose items have the properties of `include` and `exclude`."""
        return cls.signals.intersection(*(part.signals for part in (config.include, config.exclude) if part))

    def __init__(self, config: AttributesConfig, context: Context) -> None:
        super().__init__(config, context)
        self._act = compiled(config.actions)
        self._names = names_used_by(config.actions)
        self._selects = {signal: selection_test(config.include, config.exclude, signal) for signal in _CONTEXTS}

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch, edited only if an attribute changes."""
        for signal in _CONTEXTS.keys() & batch.signals:
            if changes := self._changes(batch, signal):
                _write_all(batch.edit(signal), signal, changes)
        return (batch,)

    def _changes(self, batch: Batch, signal: Signal) -> dict[int, AttributeChanges]:
        """The changes of each item, by its number in the message."""
        by_number: dict[int, AttributeChanges] = {}
        selects, item = self._selects[signal], Item()
        for number, described in enumerate(LAYOUTS[signal].walk(batch.message(signal), _CONTEXTS[signal], item)):
            if (selects is None or selects(item)) and (changes := changes_by(self._act, self._names, described)):
                by_number[number] = changes
        return by_number


def _write_all(message: Any, signal: Signal, changes: dict[int, AttributeChanges]) -> None:
    for number, item in enumerate(LAYOUTS[signal].walk(message, _CONTEXTS[signal], Item())):
        if number in changes:
            write(item, changes[number])
