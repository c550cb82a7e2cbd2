"""Bounded tables of entities by id: the ended ones leave first, and changes are noted."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training.points import LONGEST_TEXT

_MOST_ATTRIBUTES: Final = 64


class Ageing(Protocol):
    """An entity that leaves when it has ended, or without data. Times are monotonic, in s."""

    touched: float
    """When its last data arrived."""
    ended_at: float | None
    """When its end arrived; None while it lives."""


Entity = TypeVar("Entity", bound=Ageing)


class Entities(Generic[Entity]):
    """Entities of one kind by id."""

    def __init__(self, most: int, expiration: float, kept_after_end: float, refused: Callable[[], None]) -> None:
        """`expiration` is the time (s) without data after which an entity leaves, `kept_after_end` the time (s) for
        which an ended one stays. `refused` is called for data about an entity that has no room."""
        self._all: dict[str, Entity] = {}
        self._most = most
        self._expiration = expiration
        self._kept_after_end = kept_after_end
        self._refused = refused
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

    def touch(self, id_: str, make: Callable[[], Entity], now: float, *, is_end: bool = False) -> Entity | None:
        """The entity with this id, which has data now. With `is_end`, the end of a series is no sign of life.

        None if it is new and the table is full of living ones, if the id is too long, or if one has ended that is not
        known.
        """
        entity = self._all.get(id_)
        if is_end:
            if entity is not None:
                self.changed.add(id_)
            return entity
        if entity is None:
            if len(id_) > LONGEST_TEXT or (len(self._all) >= self._most and not self._make_room()):
                self._refused()
                return None
            entity = self._all[id_] = make()
        entity.touched = now
        self.changed.add(id_)
        return entity

    def sweep(self, now: float) -> None:
        """Removes the entities that ended `kept_after_end` ago, or have no data for `expiration`."""
        for id_, entity in self.items():
            is_over = entity.ended_at is not None and now - entity.ended_at > self._kept_after_end
            if is_over or now - entity.touched > self._expiration:
                self.remove(id_)

    def remove(self, id_: str) -> None:
        """Removes an entity that is there."""
        self.left.append(self._all.pop(id_))
        self.changed.add(id_)

    def forget_left(self) -> None:
        """Notes the changes of entities that are there only, so that their number is bounded."""
        self.changed &= self._all.keys()

    def change_all(self) -> None:
        """Marks every entity as changed."""
        self.changed.update(self._all)

    def take_changed(self) -> list[str]:
        """The ids that have changed or left since the last call, in order."""
        taken, self.changed = self.changed, set()
        return sorted(taken)

    def _make_room(self) -> bool:
        ended = [(entity.ended_at, id_) for id_, entity in self._all.items() if entity.ended_at is not None]
        if not ended:
            return False
        self.remove(min(ended)[1])
        return True


def bounded(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """The first attributes, with texts cut to their longest."""
    cut = ((key, value[:LONGEST_TEXT] if isinstance(value, str) else value) for key, value in attributes.items())
    return dict(islice(cut, _MOST_ATTRIBUTES))
