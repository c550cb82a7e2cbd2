"""Finds what the rules drop, and removes it from a message; for validation also what is dropped by name alone."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.conditions import Condition, ConditionFailed, Context, Item, Layout, compile_condition
from otel_zernel_libraries.repeated_fields import delete_at
from otel_zernel_processors.filter.config import FilterConfig
from otel_zernel_processors.filter.rules import Rules, metric_tests

_ABOUT_MORE = (
    "resource",
    "scope",
    "attr",
    "datapoint",
    "type",
    "unit",
    "description",
    "temporality",
    "monotonic",
    "len",
)
"""Parts of the names of fields and functions, in lower case, that concern more than the name."""


def drops_name(config: FilterConfig, name: str) -> bool:
    """Whether every metric of this name is dropped. False if that depends on anything else."""
    item = Item(metric=Metric(name=name))
    return any(_holds(condition, item) for condition in _conditions(config)) or _is_not_selected(config, item)


def _conditions(config: FilterConfig) -> Iterator[Condition]:
    """The conditions about names alone."""
    texts: list[tuple[str, Context | None]] = [(text, "metric") for text in config.metrics.metric]
    texts += [(text, group.context) for group in config.groups("metrics") for text in group.conditions]
    for text, context in texts:
        if not any(part in text.lower() for part in _ABOUT_MORE):
            yield compile_condition(text, context, "metrics")


def _holds(condition: Condition, item: Item) -> bool:
    try:
        return condition.holds(item)
    except ConditionFailed:
        return False


def _is_not_selected(config: FilterConfig, item: Item) -> bool:
    return any(
        test(item)
        for match, included in ((config.metrics.include, True), (config.metrics.exclude, False))
        if match is None or not match.resource_attributes
        for _, test in metric_tests(match, included)
    )


class Removal(NamedTuple):
    """A part of a message to remove: a resource, a scope of it, an item of that, or parts of the item.

    The indexes stop where the removed part begins; the others are None.
    """

    resource: int
    scope: int | None = None
    item: int | None = None
    parts: tuple[int, ...] = ()


class RuleWalk:
    """Walks through a message with the rules of its signal."""

    def __init__(self, layout: Layout, rules: Rules) -> None:
        self._layout = layout
        self._rules = rules
        self._at = Item()

    def removals(self, message: Any) -> list[Removal]:
        """The parts to remove, in the order of the message."""
        to_remove: list[Removal] = []
        for number, resource in enumerate(self._layout.resources(message)):
            self._at.resource = resource.resource
            if self._drops("resource"):
                to_remove.append(Removal(number))
                continue
            for inner, scope in enumerate(self._layout.scopes(resource)):
                self._at.scope = scope.scope
                if self._drops("scope"):
                    to_remove.append(Removal(number, inner))
                else:
                    to_remove += self._items(number, inner, self._layout.items(scope))
        return to_remove

    def _items(self, resource: int, scope: int, items: Sequence[Any]) -> list[Removal]:
        """The removals in one scope."""
        removals: list[Removal] = []
        whole, part = self._layout.contexts
        if whole not in self._rules and part not in self._rules:
            return removals
        for number, item in enumerate(items):
            self._layout.enter(self._at, item)
            if self._drops(whole):
                removals.append(Removal(resource, scope, number))
            elif part in self._rules and (parts := self._parts(item, part)):
                removals.append(Removal(resource, scope, number, tuple(parts)))
        return removals

    def _parts(self, item: Any, context: Context | None) -> list[int]:
        numbers = []
        for number, part in enumerate(self._layout.parts(item)):
            self._layout.enter_part(self._at, part)
            if context and self._drops(context):
                numbers.append(number)
        return numbers

    def _drops(self, context: Context) -> bool:
        tests = self._rules.get(context, ())
        return any(test(self._at) for test in tests)


def remove(message: Any, layout: Layout, removals: Sequence[Removal]) -> None:
    """Removes the parts, and the metrics, scopes and resources that lose their last content."""
    resources = layout.resources(message)
    for index, in_resource in _from_the_last(removals, lambda removal: removal.resource):
        scopes = layout.scopes(resources[index])
        if in_resource[0].scope is not None:
            _remove_in(scopes, layout, in_resource)
        if in_resource[0].scope is None or not scopes:
            del resources[index]


def _remove_in(scopes: Any, layout: Layout, removals: Sequence[Removal]) -> None:
    for index, in_scope in _from_the_last(removals, lambda removal: removal.scope):
        items = layout.items(scopes[index])
        if in_scope[0].item is not None:
            some = [(removal.item, removal) for removal in in_scope if removal.item is not None]
            gone = [at for at, removal in some if _loses_all(items[at], layout, removal)]
            delete_at(items, gone)
        if in_scope[0].item is None or not items:
            del scopes[index]


def _loses_all(item: Any, layout: Layout, removal: Removal) -> bool:
    """Removes the parts of an item. Returns whether the item itself goes: a span stays without events."""
    if not removal.parts:
        return True
    parts = layout.parts(item)
    delete_at(parts, removal.parts)
    return not parts and layout.contexts[0] == "metric"


def _from_the_last(removals: Sequence[Removal], key: Callable[[Removal], Any]) -> Iterator[tuple[int, list[Removal]]]:
    groups: list[tuple[int, list[Removal]]] = [(index, list(group)) for index, group in groupby(removals, key)]
    return reversed(groups)
