"""Calls that may hang for ever, such as those to a filesystem of a lost server."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


class HangingCalls:
    """Runs calls in a daemon thread. A call that hangs costs a thread, and is not repeated until it has returned."""

    def __init__(self, name: str, timeout: float) -> None:
        """`timeout` in seconds."""
        self._name = name
        self._timeout = timeout
        self._queue: SimpleQueue[_Call] | None = None
        self._hung: dict[str, Future[Any]] = {}

    def call(self, key: str, function: Callable[[], T]) -> T:
        """The result of the function. Raises TimeoutError if it hangs, or if the last call with this key still does."""
        hung = self._hung.get(key)
        if hung and not hung.done():
            raise TimeoutError
        future: Future[T] = Future()
        self._ready().put((future, function))
        try:
            return future.result(self._timeout)
        except TimeoutError:
            if not future.done():  # else the function raised it
                self._hung[key] = future
                self._queue = None
            raise

    def _ready(self) -> "SimpleQueue[_Call]":
        """The queue of a thread that does not hang."""
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=self._work, args=(self._queue,), name=self._name, daemon=True).start()
        return self._queue

    def _work(self, queue: "SimpleQueue[_Call]") -> None:
        """Ends after a call that hung: another thread has taken over."""
        while True:
            future, function = queue.get()
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001  # raised again in `call`
                future.set_exception(error)
            if self._queue is not queue:
                return
