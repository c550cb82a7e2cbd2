"""Values that are made on first use, in whichever thread that is."""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

Made = TypeVar("Made")


def once(make: Callable[[], Made]) -> Callable[[], Made]:
    """`make`, called once even if several threads need its value at once. `functools.cache` would call it in each."""
    making = Lock()
    values: list[Made] = []

    def value() -> Made:
        if not values:
            with making:
                if not values:
                    values.append(make())
        return values[0]

    return value
