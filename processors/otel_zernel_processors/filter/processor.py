"""The filter processor."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import ITEMS_AT_ONCE, Context, Processor
from otel_zernel.component.forms import DataForms
from otel_zernel_libraries.conditions import LAYOUTS, ConditionFailed
from otel_zernel_processors.filter.config import FilterConfig
from otel_zernel_processors.filter.declared import FILTERED
from otel_zernel_processors.filter.removals import RuleWalk, drops_name, remove
from otel_zernel_processors.filter.rules import Rules, rules_of

_COUNTED: Mapping[Signal, str] = {"metrics": "datapoints", "traces": "spans", "logs": "logs"}


class FilterProcessor(Processor):
    """Drops metrics, data points, spans, span events and log records that meet conditions."""

    Config = FilterConfig
    stability = "beta"
    items_at_once = ITEMS_AT_ONCE

    def __init__(self, config: FilterConfig, context: Context) -> None:
        super().__init__(config, context)
        every = {signal: rules_of(config, signal, context) for signal in _COUNTED if signal in context.signals}
        self._rules: dict[Signal, Rules] = {signal: rules for signal, rules in every.items() if rules}
        self._filtered = {
            signal: context.meter.create_counter(*FILTERED[noun].counter) for signal, noun in _COUNTED.items()
        }

    @classmethod
    def forms(cls, config: FilterConfig) -> DataForms:
        return DataForms(drops=partial(drops_name, config))

    @property
    def reads(self) -> Collection[Signal]:
        """The signals that have conditions."""
        return self._rules.keys()

    def process(self, batch: Batch) -> Iterator[Batch]:
        """The batch without the items that are dropped. Nothing if nothing is left."""
        try:
            for signal, rules in self._rules.items():
                if batch.count_of(signal):
                    self._filter(batch, signal, rules)
        except ConditionFailed as failed:
            count = batch.item_count
            self.context.logger.error("Dropped %d items, because error_mode is propagate: %s", count, failed)
            self.context.drop(count, "condition_error")
            return
        kept = [signal for signal in batch.signals if batch.count_of(signal)]
        if kept:
            yield batch if len(kept) == len(batch.signals) else batch.only(kept)

    def _filter(self, batch: Batch, signal: Signal, rules: Rules) -> None:
        layout, before = LAYOUTS[signal], batch.count_of(signal)
        if removals := RuleWalk(layout, rules).removals(batch.message(signal)):
            remove(batch.edit(signal), layout, removals)
            self._filtered[signal].add(before - batch.count_of(signal), {"filter": self.context.id})
