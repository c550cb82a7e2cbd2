"""The same walk through the messages of the three signals: resources, scopes, items, and the parts of items."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from otel_zernel.batch import Signal, points
from otel_zernel_libraries.conditions.fields import Context
from otel_zernel_libraries.conditions.item import Item

_points: Callable[..., Any] = points


@dataclass(frozen=True, slots=True)
class Layout:
    """How to walk through the message of one signal. Each function returns a repeated field of its argument."""

    resources: Callable[[Any], Any]
    scopes: Callable[[Any], Any]
    items: Callable[[Any], Any]
    """Metrics, spans or log records."""
    parts: Callable[[Any], Any]
    """The points of a metric, the events of a span, nothing of a log record."""
    contexts: tuple[Context, Context | None]
    """Of items and of parts."""
    members: tuple[str, str | None]
    """The fields of `Item` for an item and a part."""

    def enter(self, at: Item, item: Any) -> None:
        """Makes `at` stand at an item."""
        setattr(at, self.members[0], item)

    def enter_part(self, at: Item, part: Any) -> None:
        """Makes `at` stand at a part of its item."""
        if self.members[1]:
            setattr(at, self.members[1], part)

    def walk(self, message: Any, context: Context, at: Item) -> Iterator[Any]:
        """The messages of a context, with `at` standing at each."""
        for resource in self.resources(message):
            at.resource = resource.resource
            if context == "resource":
                yield resource.resource
                continue
            for scope in self.scopes(resource):
                at.scope = scope.scope
                if context == "scope":
                    yield scope.scope
                else:
                    yield from self._walk_items(self.items(scope), context, at)

    def _walk_items(self, items: Sequence[Any], context: Context, at: Item) -> Iterator[Any]:
        for item in items:
            self.enter(at, item)
            if context == self.contexts[0]:
                yield item
                continue
            for part in self.parts(item):
                self.enter_part(at, part)
                yield part


LAYOUTS: Mapping[Signal, Layout] = {
    "metrics": Layout(
        attrgetter("resource_metrics"),
        attrgetter("scope_metrics"),
        attrgetter("metrics"),
        _points,
        ("metric", "datapoint"),
        ("metric", "point"),
    ),
    "traces": Layout(
        attrgetter("resource_spans"),
        attrgetter("scope_spans"),
        attrgetter("spans"),
        attrgetter("events"),
        ("span", "spanevent"),
        ("span", "event"),
    ),
    "logs": Layout(
        attrgetter("resource_logs"),
        attrgetter("scope_logs"),
        attrgetter("log_records"),
        lambda record: (),
        ("log", None),
        ("log", None),
    ),
}
