"""One run of the command: the source, and the screen, one table or JSON."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from otel_zernel.cli.output import print_result, require_stdout
from otel_zernel.errors import CannotStart
from otel_zernel_commands.watch.screens import DrawnScreen, FeedStatus, WatchView, draw
from otel_zernel_commands.watch.sources import SourceOptions, WatchSource, source_of
from otel_zernel_commands.watch.styled import Surface
from otel_zernel_commands.watch.terminal import FullScreen, LineWriter, is_coloured, is_dumb, rendered, styles_for

_PIPED = 120
"""Columns of a table that is not for a terminal."""
_NARROWEST, _WIDEST = 20, 400
_FIRST = 0.1
"""Seconds between two looks for the first state."""


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The options of the command line."""

    source: SourceOptions
    once: bool = False
    as_json: bool = False
    no_color: bool = False


def run_watch(word: str | None, options: ViewOptions) -> int:
    """Runs until the user quits, or prints once. Returns the exit status. Raises `CannotStart`."""
    require_stdout()
    prints = options.once or options.as_json or not sys.stdout.isatty() or is_dumb(os.environ)
    source = source_of(word, replace(options.source, speed=0.0) if prints else options.source)
    if prints:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(source.run(once=True))
            _print(source, options)
            return 0
        return 128 + signal.SIGINT
    ended_by = asyncio.run(WatchSession(source, options).run())
    return 128 + ended_by if ended_by not in (0, signal.SIGINT) else 0


def _print(source: WatchSource, options: ViewOptions) -> None:
    state = source.state()
    if state is None:
        raise CannotStart(f"{source.title} has no state")
    if options.as_json:
        print_result(json.dumps(state, separators=(",", ":")))
    else:
        columns = _columns() if sys.stdout.isatty() or os.environ.get("COLUMNS") else _PIPED
        surface = Surface(columns, None, is_unicode=_is_unicode())
        styles = styles_for(os.environ, is_coloured=is_coloured(sys.stdout, os.environ, refused=options.no_color))
        styles = styles if sys.stdout.isatty() and not is_dumb(os.environ) else {}
        drawn = draw(state, WatchView(), _status(source), surface)
        print_result("".join(rendered(line, styles).rstrip() + "\n" for line in drawn.lines))


class WatchSession:
    """The view on a terminal."""

    def __init__(self, source: WatchSource, options: ViewOptions) -> None:
        self._source = source
        self._view = WatchView(interval=options.source.interval)
        styles = styles_for(os.environ, is_coloured=is_coloured(sys.stdout, os.environ, refused=options.no_color))
        self._writer = LineWriter(sys.stdout.fileno(), styles, sys.stdout.encoding or "utf-8")
        self._drawn = DrawnScreen([], [], 1)
        self._frozen: dict[str, Any] | None = None
        self._wake = asyncio.Event()
        self._ended_by = 0

    async def run(self) -> int:
        """Returns the number of the signal that ended it; 0 for the key q. Raises `CannotStart`."""
        keyboard = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        async with _following(self._source) as following:
            with FullScreen(
                sys.stdout.fileno(),
                keyboard,
                on_key=self._on_key,
                on_change=self._on_change,
                on_signal=self._on_signal,
            ):
                while not self._view.has_quit:
                    if following.done():
                        following.result()
                    self._draw()
                    await self._pause(is_first=self._source.state() is None)
        return self._ended_by

    async def _pause(self, *, is_first: bool) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _FIRST if is_first else self._view.interval)
        self._wake.clear()

    def _draw(self) -> None:
        state = self._source.state() or {}
        if not self._view.is_frozen:
            self._frozen = None
        elif self._frozen is None:
            self._frozen = _snapshot(state)
        columns, rows = _size(sys.stdout.fileno())
        surface = Surface(columns, rows, is_unicode=_is_unicode())
        shown = state if self._frozen is None else self._frozen
        self._drawn = draw(shown, self._view, _status(self._source), surface)
        self._writer.show(self._drawn.lines)

    def _on_key(self, key: str) -> None:
        if key == "ctrl-l":
            self._writer.forget()  # other programs may have written over the screen
        self._view.press(key, self._drawn.shown, self._drawn.page_rows)
        self._wake.set()

    def _on_change(self) -> None:
        self._writer.forget()
        self._wake.set()

    def _on_signal(self, number: int) -> None:
        self._ended_by = number
        self._view.has_quit = True
        self._wake.set()


@asynccontextmanager
async def _following(source: WatchSource) -> AsyncIterator["asyncio.Task[None]"]:
    """Follows the source meanwhile."""
    following = asyncio.create_task(source.run(), name="watch source")
    try:
        yield following
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _status(source: WatchSource) -> FeedStatus:
    return FeedStatus(source.title, source.trouble, source.now_ms(), source.gpu_notes)


def _snapshot(state: dict[str, Any]) -> dict[str, Any]:
    """A copy that later deltas do not change. They replace the values below the third level."""
    return {
        name: {
            id_: dict(value) if isinstance(value, dict) else list(value) if isinstance(value, list) else value
            for id_, value in table.items()
        }
        if isinstance(table, dict)
        else list(table)
        if isinstance(table, list)
        else table
        for name, table in state.items()
    }


def _size(descriptor: int) -> tuple[int, int]:
    """Columns and rows. A terminal that does not know them, as a serial line, has 80 and 24."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        size = os.terminal_size((0, 0))
    return min(max(size.columns or 80, _NARROWEST), _WIDEST), max(size.lines or 24, 4)


def _columns() -> int:
    """The columns for one table, by `COLUMNS` or the terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return min(max(int(columns), _NARROWEST), _WIDEST)
    return _size(sys.stdout.fileno())[0]


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
