"""When Python's garbage collector runs.

A full collection visits every object that is not frozen, and blocks all threads meanwhile: 25 ms for the 60,000
modules, classes and settings of a collector, 250 ms for 300,000 batches of a queue on the disk.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_MANY = 5_000
"""Objects whose collection takes more than 1 ms."""
_lock = Lock()
_deferrals = 0


@contextmanager
def collection_deferred() -> Iterator[None]:
    """Defers collections while objects are made that live long. If they are many, later collections exclude them.

    Contexts of several threads may overlap: collections start again when the last one ends.
    """
    _defer(1)
    try:
        yield
    finally:
        if gc.get_count()[0] > _MANY:
            gc.freeze()
        _defer(-1)


def _defer(change: int) -> None:
    global _deferrals
    with _lock:
        _deferrals += change
        gc.disable() if _deferrals else gc.enable()


def freeze_start() -> None:
    """Excludes all living objects from collections. A start leaves so little garbage that it is not collected."""
    gc.freeze()


def freeze_all() -> None:
    """Excludes all living objects from collections, and collects those that a reload has replaced."""
    gc.unfreeze()  # the replaced components
    freeze_newer()


def freeze_newer() -> None:
    """Excludes all living objects from collections, and collects the garbage among those that were not excluded yet."""
    gc.collect()  # garbage that is frozen would stay until the next reload
    gc.freeze()
