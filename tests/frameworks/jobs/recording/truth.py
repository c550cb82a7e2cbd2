"""The truth of a training program: which region each of its threads is in, by CLOCK_MONOTONIC in ns.

A program marks its regions itself, or by callbacks around the calls of its framework. Regions nest, and the innermost
counts. Time outside all regions, and in regions named GLUE, is not scored: it belongs to no phase for certain.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

GLUE = "glue"
"""Code of a framework inside a region of another kind, for example the closure that an optimizer calls."""
now = time.monotonic_ns
Mark = tuple[str, int, int]


class ThreadTruth:
    """The regions of one thread."""

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.loop: list[int] = []
        self.steps = 0
        self.around: list[str] = []
        """The regions that are open, the innermost last."""
        self._edges: list[tuple[int, str]] = []

    def enter(self, name: str) -> None:
        """A region begins."""
        self.around.append(name)
        self._edges.append((now(), name))

    def leave(self) -> None:
        """The innermost region ends."""
        self._edges.append((now(), ""))
        self.around.pop()

    def marks(self) -> list[Mark]:
        """The regions in the loop."""
        begin, end = self.loop
        within = [(name, max(start, begin), min(until, end)) for name, start, until in self._all_marks()]
        return [mark for mark in within if mark[1] < mark[2]]

    def marks_before(self) -> list[Mark]:
        """The regions before the loop."""
        return [mark for mark in self._all_marks() if mark[2] <= self.loop[0]]

    def _all_marks(self) -> list[Mark]:
        """The regions in order of time, without overlap. A region around others is cut at their edges."""
        marks: list[Mark] = []
        around: list[str] = []
        since = 0
        for at, name in self._edges:
            if around and around[-1] != GLUE and at > since:
                marks.append((around[-1], since, at))
            since = at
            if name:
                around.append(name)
            else:
                around.pop()
        return marks


class Recorder:
    """The truths of all threads of a process. `rank` is its number among the processes of the job."""

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder, self.rank = folder, rank
        self.versions: dict[str, str] = {}
        self._local = threading.local()
        self._threads: list[ThreadTruth] = []

    @property
    def own(self) -> ThreadTruth:
        """The truth of the calling thread."""
        if not hasattr(self._local, "truth"):
            self._local.truth = ThreadTruth()
            self._threads.append(self._local.truth)
        found: ThreadTruth = self._local.truth
        return found

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """A region of the calling thread."""
        own = self.own
        own.enter(name)
        try:
            yield
        finally:
            own.leave()

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a region around each call."""

        @wraps(call)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self.region(name):
                return call(*args, **kwargs)

        return inside

    def wrap(self, owner: Any, attribute: str, name: str) -> None:
        """Replaces a function of a class or module by one with a region around each call."""
        setattr(owner, attribute, self.wrapped(name, getattr(owner, attribute)))

    def stepped(self) -> None:
        """A step of the loop ended."""
        self.own.steps += 1

    @contextmanager
    def loop(self) -> Iterator[None]:
        """The training loop of the calling thread: the scored time."""
        own, begin, first = self.own, now(), self.own.steps
        yield
        own.loop, own.steps = [begin, now()], own.steps - first

    def write(self) -> None:
        """Writes a file for each thread that had a loop."""
        for number, truth in enumerate(thread for thread in self._threads if thread.loop):
            path = self.folder / f"truth.{self.rank}.{number}.json"
            kept = {"pid": os.getpid(), "rank": self.rank, "thread": truth.thread, "loop": truth.loop}
            marks = {"marks": truth.marks(), "before": truth.marks_before()}
            rest = {"steps": truth.steps, "hidden": 0, "versions": self.versions}
            path.write_text(json.dumps({**kept, **marks, **rest}))
