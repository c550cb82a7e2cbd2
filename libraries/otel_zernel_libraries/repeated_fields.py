"""Removes elements of repeated fields of protobuf's messages."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

_MOST_RUNS = 200  # from so many gaps on, copying the rest is faster than closing them


def keep_only(field: Any, is_kept: Callable[[Any], object]) -> None:
    """Removes the other elements of a repeated field."""
    delete_at(field, [at for at, element in enumerate(field) if not is_kept(element)])


def delete_at(field: Any, indexes: Sequence[int]) -> None:
    """Deletes elements of a repeated field. The indexes ascend."""
    if not indexes:
        return
    if len(indexes) == len(field):
        del field[:]
        return
    runs = list(_runs(indexes))
    if len(runs) > _MOST_RUNS:
        gone = set(indexes)
        kept = [element for at, element in enumerate(field) if at not in gone]
        del field[:]
        field.extend(kept)
        return
    for start, end in reversed(runs):
        del field[start:end]


def _runs(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges of consecutive indexes: start, and end without the last."""
    for _, group in groupby(enumerate(indexes), lambda pair: pair[1] - pair[0]):
        numbers = [index for _, index in group]
        yield numbers[0], numbers[-1] + 1
