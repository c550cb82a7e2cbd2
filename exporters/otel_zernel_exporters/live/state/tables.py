"""Bounded tables of entities by id: the ended ones leave first, and changes are noted."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Generic, Protocol, TypeVar

from otel_zernel.otlp.points import AttributeValue

LONGEST_TEXT = 256
"""Characters of an id, and of a text that comes from a sender."""
_MOST_ATTRIBUTES = 64
KEPT_AFTER_END = 60.0
"""Seconds for which an ended entity stays visible with its end."""


class Ageing(Protocol):
    """An entity that leaves when it has ended, or without data. Times are monotonic, in s."""

    touched: float
    """When its last data arrived."""
    ended_at: float | None
    """When its end arrived; None while it lives."""


Entity = TypeVar("Entity", bound=Ageing)


class Entities(Generic[Entity]):
    """Entities of one kind by id."""

    def __init__(self, most: int, expiration: float, refused: Callable[[], None]) -> None:
        """`expiration` is the time (s) without data after which an entity leaves. `refused` is called for data about
        an entity that has no room."""
        self._all: dict[str, Entity] = {}
        self._most = most
        self._expiration = expiration
        self._refused = refused
        self._bounded_elsewhere: set[str] = set()
        self.changed: set[str] = set()
        """The ids that have changed, or left, since the last `take_changed`."""
        self.left: list[Entity] = []
        """Those that have left since the owner cleared the list."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._all.values())

    def get(self, id_: str) -> Entity | None:
        return self._all.get(id_)

    def items(self) -> list[tuple[str, Entity]]:
        return list(self._all.items())

    def touch(self, id_: str, make: Callable[[], Entity], now: float) -> Entity | None:
        """The entity with this id, which has data now.

        None if it is new and the table is full of living ones, or if the id is too long.
        """
        found = self._all.get(id_)
        if found is None:
            is_full = len(self._all) - len(self._bounded_elsewhere) >= self._most
            if len(id_) > LONGEST_TEXT or (is_full and not self._make_room()):
                self._refused()
                return None
            found = self._all[id_] = make()
        found.touched = now
        self.changed.add(id_)
        return found

    def place(self, id_: str, entity: Entity, now: float) -> Entity:
        """Adds a new entity that does not count for the limit: it belongs to an entity of another table."""
        self._bounded_elsewhere.add(id_)
        self._all[id_] = entity
        entity.touched = now
        self.changed.add(id_)
        return entity

    def sweep(self, now: float) -> None:
        """Removes the entities that ended a minute ago, or have no data for `expiration`."""
        for id_, one in self.items():
            is_over = one.ended_at is not None and now - one.ended_at > KEPT_AFTER_END
            if is_over or now - one.touched > self._expiration:
                self.remove(id_)

    def remove(self, id_: str) -> None:
        """Removes an entity that is there."""
        self.left.append(self._all.pop(id_))
        self._bounded_elsewhere.discard(id_)
        self.changed.add(id_)

    def change_all(self) -> None:
        """Marks every entity as changed."""
        self.changed.update(self._all)

    def take_changed(self) -> list[str]:
        """The ids that have changed or left since the last call, in order."""
        taken, self.changed = self.changed, set()
        return sorted(taken)

    def _make_room(self) -> bool:
        counted = ((one.ended_at, id_) for id_, one in self._all.items() if id_ not in self._bounded_elsewhere)
        ended = [(at, id_) for at, id_ in counted if at is not None]
        if not ended:
            return False
        self.remove(min(ended)[1])
        return True


def bounded(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """The first attributes, with texts cut to their longest."""
    cut = ((key, one[:LONGEST_TEXT] if isinstance(one, str) else one) for key, one in attributes.items())
    return dict(islice(cut, _MOST_ATTRIBUTES))
