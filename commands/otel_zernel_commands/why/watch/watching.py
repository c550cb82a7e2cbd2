"""The watch itself: the engine's service, until the time is over, the job ends, or Ctrl-C."""

import asyncio
import contextlib
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from otel_zernel.clock import Clock, SystemClock
from otel_zernel.config.schema import Settings
from otel_zernel.engine.service import Service
from otel_zernel.text import one_line, visible, without_secrets
from otel_zernel_libraries.training.amounts import percent

_LOG = "otel_zernel"
"""The logger above those of all components."""
_RECEIVERS = "otel_zernel.receivers"
"""Receivers warn of data that they cannot read. Other warnings are about the flow of data."""
_MOST_WARNINGS = 20
LONGEST_SEARCH = 15.0
"""Seconds for the components to find the first steps. A process with the libraries of CUDA takes 2 to 5 s."""
SHORT_LOOK = 5.0
"""Seconds to watch if no process can show steps: its threads are all that there is to see."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST_START = 60.0
"""Seconds for the probes to be in place: a busy machine takes long to read large libraries."""
MOST_COST = 0.15
"""The share of a job's time that the watch may take. Probes are sampled from two thirds of it on."""
_FIRST_COST = 10.0
"""Seconds until that is known."""
_SILENT = 0.5
"""Seconds at the start in which an obstacle to the probes may be found, and nothing is shown."""
_LOOK = 0.05
"""Seconds between two looks whether they are."""
_EBPF = "receivers::ebpf"
_TICK = 0.5
"""Seconds between two looks at the progress."""


@dataclass(slots=True)
class Watching:
    """The state of a watch."""

    seconds: float
    """How long it should last, from the first steps on."""
    searched: float = 0.0
    """Seconds from the start to the first steps. At most `LONGEST_SEARCH`, unless the watch starts the program."""
    elapsed: float = 0.0
    """Seconds since the first steps, or since `LONGEST_SEARCH` after the start."""
    is_searching: bool = True
    """Whether no step has been seen yet."""
    ended_by: int = 0
    """The number of the signal that ended it, if one did."""
    warnings: list[str] = field(default_factory=list)
    """What components warned of, each once."""
    obstacle: str = ""
    """Why no probes could be put in place, if so. Then nothing was watched."""

    @property
    def is_interrupted(self) -> bool:
        return self.ended_by > 0


class _Warnings(logging.Handler):
    """Keeps warnings, and prints nothing: the terminal belongs to the progress line."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != _RECEIVERS:
            return
        text = visible(without_secrets(one_line(record.getMessage())))
        if text not in self._kept and len(self._kept) < _MOST_WARNINGS:
            self._kept.append(text)


class WatchFollower(Protocol):
    """What a watch has to know about what it sees."""

    @property
    def starts_program(self) -> bool:
        """Whether it starts the program that it watches, whose first step may come late."""

    def begin(self) -> None:
        """Called when the probes are in place."""

    def show(self, watching: "Watching") -> None:
        """Called about twice a second."""

    def has_steps(self) -> bool:
        """Whether a job has taken a step: the time begins."""

    def may_show_steps(self) -> bool:
        """Whether a process has loaded a library that shows steps."""

    def cost(self) -> float:
        """The share of the time of a job that probes took: the largest of all jobs."""

    def has_ended(self) -> bool:
        """Whether all jobs have ended: there is nothing more to see."""


def watch(
    settings: Settings,
    seconds: float,
    followed: WatchFollower,
    attached: threading.Event | None = None,
    clock: Clock | None = None,
) -> Watching:
    """Runs the service for `seconds` after the first steps, or until all jobs have ended. If no process can show steps,
    `SHORT_LOOK` is the longest time. The watch begins when `attached` is set, or after `_LONGEST_START`.

    The first Ctrl-C, SIGTERM or SIGHUP ends it early, too: then all data so far is processed. The second one raises
    KeyboardInterrupt, or ends the process. Raises `CannotStart`.
    """
    watching = Watching(seconds)
    with _kept_warnings(watching.warnings):
        asyncio.run(_run(settings, watching, followed, attached, clock or SystemClock()))
    return watching


def replay(settings: Settings, progress: Callable[[], None]) -> Watching:
    """Runs the service until its recording has ended, and calls `progress` about twice a second. Signals end it as they
    end a watch. Raises `CannotStart`."""
    watching = Watching(0.0)
    with _kept_warnings(watching.warnings):
        asyncio.run(_replay(settings, watching, progress))
    return watching


@contextlib.contextmanager
def _kept_warnings(kept: list[str]) -> Iterator[None]:
    """The log has no other output meanwhile."""
    root, logger = logging.getLogger(), logging.getLogger(_LOG)
    handlers, level = root.handlers[:], logger.level
    root.handlers[:] = [_Warnings(kept)]
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        logger.setLevel(level)


async def _replay(settings: Settings, watching: Watching, progress: Callable[[], None]) -> None:
    async def show() -> None:
        while True:
            progress()
            await asyncio.sleep(_TICK)

    with _ended_by_signals(watching) as stop:
        showing = asyncio.create_task(show(), name="progress")
        try:
            await Service(settings).run(stop, exit_when_done=True)
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)


async def _run(
    settings: Settings, watching: Watching, followed: WatchFollower, attached: threading.Event | None, clock: Clock
) -> None:
    service = Service(settings, clock)

    def obstacle() -> str:
        return service.graph.health.problems.get(_EBPF, "")

    with _ended_by_signals(watching) as stop:
        pacing = asyncio.create_task(pace(watching, followed, stop, clock, attached, obstacle), name="pacing")
        try:
            await service.run(stop)
        finally:
            pacing.cancel()
            await asyncio.gather(pacing, return_exceptions=True)


@contextlib.contextmanager
def _ended_by_signals(watching: Watching) -> Iterator[asyncio.Event]:
    """The event that the first signal sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # nohup ignores SIGHUP, and so lets the watch outlive its terminal.
    handled = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(by: int) -> None:
        watching.ended_by = by
        stop.set()
        for number in handled:
            loop.remove_signal_handler(number)

    for number in handled:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(number, interrupt, number)
    yield stop


async def pace(
    watching: Watching,
    followed: WatchFollower,
    stop: asyncio.Event,
    clock: Clock,
    attached: threading.Event | None = None,
    obstacle: Callable[[], str] = lambda: "",
) -> None:
    """Sets `stop` when the time is over, when all jobs have ended, or when there will be no steps. An `obstacle` to the
    probes ends the watch before it begins."""
    silent_until, until = clock.monotonic() + _SILENT, clock.monotonic() + _LONGEST_START
    while attached and not attached.is_set() and clock.monotonic() < until and not stop.is_set():
        if problem := obstacle():
            watching.obstacle = problem
            stop.set()
            return
        if not followed.starts_program and clock.monotonic() >= silent_until:
            followed.show(watching)
        await clock.sleep(_LOOK)
    followed.begin()
    only_its_end = math.inf, math.inf  # it may load PyTorch late, for example after a download
    longest_search, short_look = (
        only_its_end if followed.starts_program else (LONGEST_SEARCH, min(SHORT_LOOK, watching.seconds))
    )
    started = clock.monotonic()
    while not stop.is_set() and watching.elapsed < watching.seconds and not followed.has_ended():
        followed.show(watching)
        left = watching.seconds - watching.elapsed
        await clock.sleep(min(_TICK, left))
        if watching.is_searching:
            watching.searched = clock.monotonic() - started
            if watching.searched >= short_look and not followed.may_show_steps():
                break
            watching.is_searching = not followed.has_steps() and watching.searched < longest_search
            started += 0.0 if watching.is_searching else watching.searched
        else:
            watching.elapsed = clock.monotonic() - started
            if watching.elapsed >= _FIRST_COST and (cost := followed.cost()) > MOST_COST:
                most = f"more than the limit of {percent(MOST_COST)}"
                watching.warnings.append(f"The watch ended early: it slowed a job by about {percent(cost)}, {most}.")
                break
    stop.set()
