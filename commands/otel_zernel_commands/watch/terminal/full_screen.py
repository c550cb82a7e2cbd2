"""The whole terminal, with its keys, for as long as a context is entered. It is restored on every way out."""

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from otel_zernel_commands.watch.terminal.keys import KeyReader
from otel_zernel_commands.watch.terminal.writing import write_all

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, no cursor, no wrapping."""
_LEAVE = b"\x1b[?2026l\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
_ESCAPE_WAIT = 0.05
"""Seconds. A terminal sends the rest of a sequence sooner."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class FullScreen:
    """Enters in the main thread of a running event loop. The callbacks are called in the loop."""

    def __init__(
        self,
        output: int,
        keyboard: int | None,
        *,
        on_key: Callable[[str], None],
        on_change: Callable[[], None],
        on_signal: Callable[[int], None],
    ) -> None:
        """`keyboard` is None if there is none. `on_change`: the size has changed, or another program has written.
        `on_signal`: a signal asks to end."""
        self._output = output
        self._keyboard = keyboard
        self._on_key = on_key
        self._on_change = on_change
        self._on_signal = on_signal
        self._keys = KeyReader()
        self._flushing: asyncio.TimerHandle | None = None
        self._modes: list[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in _ENDING:
            self._loop.add_signal_handler(number, self._on_signal, number)
        for number in (signal.SIGWINCH, signal.SIGCONT):
            self._loop.add_signal_handler(number, self._again)
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        if self._keyboard is not None:
            self._modes = termios.tcgetattr(self._keyboard)
            self._loop.add_reader(self._keyboard, self._read)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._loop is not None  # noqa: S101  # set by __enter__
        if self._flushing:
            self._flushing.cancel()
        if self._keyboard is not None:
            self._loop.remove_reader(self._keyboard)
        with _blocked(_ENDING):
            self._give()
        for number in (*_ENDING, signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP):
            self._loop.remove_signal_handler(number)

    def _take(self) -> None:
        if self._keyboard is not None:
            tty.setcbreak(self._keyboard, termios.TCSADRAIN)
        write_all(self._output, _ENTER)

    def _give(self) -> None:
        """Restores the terminal. It may be gone, as after a lost connection."""
        with contextlib.suppress(OSError):
            write_all(self._output, _LEAVE)
        if self._keyboard is not None and self._modes is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)

    def _again(self) -> None:
        """Takes the terminal again, as after `kill -STOP` and `-CONT`, and asks for a new drawing."""
        with contextlib.suppress(OSError, termios.error):
            self._take()
        self._on_change()

    def _stop(self) -> None:
        """Ctrl-Z: restores the terminal, and stops as a program without a handler does."""
        assert self._loop is not None  # noqa: S101  # set by __enter__
        self._give()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # returns after SIGCONT
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._again()

    def _read(self) -> None:
        assert self._loop is not None  # noqa: S101  # set by __enter__
        assert self._keyboard is not None  # noqa: S101  # else there is no reader
        try:
            data = os.read(self._keyboard, 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the terminal has gone
            self._loop.remove_reader(self._keyboard)
            self._on_signal(signal.SIGHUP)
            return
        if self._flushing:
            self._flushing.cancel()
        for key in self._keys.feed(data):
            self._on_key(key)
        if self._keys.is_waiting:
            self._flushing = self._loop.call_later(_ESCAPE_WAIT, self._flush)

    def _flush(self) -> None:
        for key in self._keys.flush():
            self._on_key(key)


@contextmanager
def _blocked(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """No signal interrupts the restoration."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
