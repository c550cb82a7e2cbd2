"""Readers of points that processes, jobs, GPUs and memory share. A point without a recorded value ends its series."""

from collections.abc import Callable

from otel_zernel_libraries.training.points import SeenValue


class TooManySeries(Exception):
    """An entity has no room for another series."""


Read = Callable[[object, SeenValue], None]


def gauge(field: str) -> Read:
    """Reads a gauge into a field, which is None without a value."""

    def read(entity: object, seen: SeenValue) -> None:
        setattr(entity, field, seen.value)

    return read


def chosen(field: str, attribute: str) -> Read:
    """Reads a gauge that is 1 for one value of an attribute, and 0 for the others: the field has this value."""

    def read(entity: object, seen: SeenValue) -> None:
        name = seen.text(attribute)
        if seen.value:
            setattr(entity, field, name)
        elif getattr(entity, field) == name:
            setattr(entity, field, "")

    return read
