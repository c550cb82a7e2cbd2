"""The difference between the running components and those that a configuration wants. Nothing is started here."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from otel_zernel.batch import ALL_SIGNALS, Signal
from otel_zernel.component import ComponentConfig, Kind
from otel_zernel.config.schema import ComponentSettings, PipelineSettings, Settings
from otel_zernel.registry import ComponentClass
from otel_zernel.telemetry.metering import meters_of

Fate = Literal["added", "removed", "restarted", "kept"]


class Place(NamedTuple):
    """The place of one instance in a configuration. A processor has an instance in each of its pipelines."""

    kind: Kind
    id: str
    pipeline: str = ""
    """Only for processors."""

    @property
    def path(self) -> str:
        """The component's path in the configuration: `receivers::csv`."""
        return f"{self.kind}::{self.id}"

    def __str__(self) -> str:
        return f"{self.path} in {self.pipeline}" if self.pipeline else self.path


class Definition(NamedTuple):
    """Everything that an instance is made of. Instances with equal definitions are interchangeable."""

    cls: ComponentClass
    config: ComponentConfig
    signals: frozenset[Signal] = ALL_SIGNALS
    meters: Hashable = None
    """Identifies the meter provider, which an instance keeps for its life."""


Definitions = Mapping[Place, Definition]
"""The instances of a configuration, in the order in which they start."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The fate of each place. Every place of both sides is in exactly one of the four groups."""

    added: tuple[Place, ...] = ()
    removed: tuple[Place, ...] = ()
    restarted: Mapping[Place, str] = field(default_factory=dict)
    """With the reason: the changed keys, or the extension that changed."""
    kept: tuple[Place, ...] = ()

    @property
    def leaving(self) -> tuple[Place, ...]:
        """The instances that stop."""
        return (*self.removed, *self.restarted)

    @property
    def starting(self) -> tuple[Place, ...]:
        """The instances that start."""
        return (*self.added, *self.restarted)

    def lines(self) -> Iterator[tuple[Fate, str]]:
        """Each group that is not empty, with the names of its places."""
        restarted = [f"{place} ({reason})" for place, reason in self.restarted.items()]
        groups: dict[Fate, list[str]] = {
            "added": [*map(str, self.added)],
            "removed": [*map(str, self.removed)],
            "restarted": restarted,
            "kept": [*map(str, self.kept)],
        }
        yield from ((fate, ", ".join(names)) for fate, names in groups.items() if names)


def difference(
    running: Definitions, wanted: Definitions, uses: Mapping[Place, Collection[str]] | None = None
) -> Difference:
    """Compares the running instances with the wanted ones. `uses` has the ids of the extensions that each one uses.

    An instance is kept if its definition is equal, and if every extension that it uses is kept.
    """
    both = [place for place in wanted if place in running]
    removed = tuple(place for place in running if place not in wanted)
    changed = {place: _change(running[place], wanted[place]) for place in both if running[place] != wanted[place]}
    restarted = _with_dependents(both, removed, changed, uses or {})
    return Difference(
        added=tuple(place for place in wanted if place not in running),
        removed=removed,
        restarted={place: restarted[place] for place in both if place in restarted},
        kept=tuple(place for place in both if place not in restarted),
    )


def _with_dependents(
    both: Iterable[Place],
    removed: Iterable[Place],
    changed: Mapping[Place, str],
    uses: Mapping[Place, Collection[str]],
) -> dict[Place, str]:
    """`changed`, and the instances that use an extension that stops, directly or through other extensions."""
    restarted = dict(changed)
    while True:
        stopping = {place.id for place in (*removed, *restarted) if place.kind == "extensions"}
        dependents = {
            place: f"uses extension {min(used)}"
            for place in both
            if place not in restarted and (used := stopping.intersection(uses.get(place, ())))
        }
        if not dependents:
            return restarted
        restarted |= dependents


def definitions(settings: Settings) -> dict[Place, Definition]:
    """The instances that the settings want: extensions, exporters, processors, receivers."""
    meters = meters_of(settings.telemetry)
    pipelines = settings.pipelines.values()
    by_place: dict[Place, Definition] = {}

    def add(kind: Kind, component: ComponentSettings, signals: frozenset[Signal], pipeline: str = "") -> None:
        place = Place(kind, component.id, pipeline)
        by_place.setdefault(place, Definition(component.cls, component.config, signals, meters))

    for id_ in settings.extensions_enabled:
        add("extensions", settings.extensions[id_], ALL_SIGNALS)
    for id_ in chain.from_iterable(pipeline.exporters for pipeline in pipelines):
        add("exporters", settings.exporters[id_], ALL_SIGNALS)
    for pipeline in pipelines:
        for id_ in pipeline.processors:
            add("processors", settings.processors[id_], pipeline.signals, pipeline.id)
    for id_ in chain.from_iterable(pipeline.receivers for pipeline in pipelines):
        add("receivers", settings.receivers[id_], _received_signals(settings, id_))
    return by_place


def used_signals(settings: Settings, pipeline: PipelineSettings) -> frozenset[Signal]:
    """The signals that the pipeline carries and that at least one of its processors or exporters accepts."""
    processors = (settings.processors[id_].cls.signals for id_ in pipeline.processors)
    exporters = (settings.exporters[id_].cls.signals for id_ in pipeline.exporters)
    return pipeline.signals.intersection(chain.from_iterable((*processors, *exporters)))


def _received_signals(settings: Settings, receiver: str) -> frozenset[Signal]:
    pipelines = (pipeline for pipeline in settings.pipelines.values() if receiver in pipeline.receivers)
    return frozenset(chain.from_iterable(used_signals(settings, pipeline) for pipeline in pipelines))


def _change(old: Definition, new: Definition) -> str:
    """Why two definitions differ, without the values: they may be secrets."""
    if old.cls is not new.cls:
        return "another class"
    if keys := changed_keys(old.config, new.config):
        return f"changed: {', '.join(keys)}"
    return "other signals" if old.signals != new.signals else "other metrics settings"


def changed_keys(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[str]:
    """The keys of two sections whose values differ, joined by `::`."""
    if not (isinstance(old, BaseModel) and type(old) is type(new)):
        return [] if old == new else ["::".join(path)]
    fields = ((name, getattr(old, name), getattr(new, name)) for name in type(old).model_fields)
    return list(chain.from_iterable(changed_keys(before, after, (*path, name)) for name, before, after in fields))
