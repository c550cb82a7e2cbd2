"""Runs an iterator in a thread of its own, so that two stages of the work overlap."""

import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_ITEMS = 2
"""The most items that a stage is ahead of the next one."""


@dataclass(frozen=True, slots=True)
class _End:
    """The last entry of the queue."""

    error: BaseException | None = None


def ahead(source: Generator[T, None, None], name: str) -> Generator[T, None, None]:
    """The items of `source`, which runs in a thread with this name. Its exception is raised here.

    Closing the result closes `source` and waits for the item that it works on.
    """
    items: SimpleQueue[T | _End] = SimpleQueue()
    room = threading.Semaphore(_ITEMS)
    closed = threading.Event()

    def work() -> None:
        try:
            with closing(source):
                for item in source:
                    items.put(item)
                    room.acquire()
                    if closed.is_set():
                        break
        except BaseException as error:  # noqa: BLE001  # raised again by the consumer
            items.put(_End(error))
        else:
            items.put(_End())

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            room.release()
            yield item
        if item.error:
            raise item.error
    finally:
        closed.set()
        room.release()
        thread.join()
