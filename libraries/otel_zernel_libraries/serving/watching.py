"""Values that are read from files, and read again while they are in use."""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Self, TypeVar

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart

Value = TypeVar("Value")
_SECOND_LOOK: Final = 1.0
"""Seconds after which unusable files are read again: a certificate and its key are not replaced in one moment."""


class WatchedFiles(Generic[Value]):
    """The value of some files, while it is entered. As long as the files are unusable, the old value stays in use."""

    def __init__(self, read: Callable[[Value | None], Value], setting: str, interval: float, context: Context) -> None:
        """`read(old)` returns the value, equal to `old` if nothing changed. It runs in a thread, raises `CannotStart`.

        `setting` is the configuration key of the files. They are read every `interval` s; 0 reads them only once.
        """
        self._read = read
        self._setting = setting
        self._interval = interval
        self._owner = context
        self._value: Value | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_entered(self) -> bool:
        """Whether there is a value."""
        return self._value is not None

    @property
    def value(self) -> Value:
        """The newest usable value. Only while entered."""
        if self._value is None:
            raise RuntimeError(f"{self._setting} is not entered")
        return self._value

    async def __aenter__(self) -> Self:
        """Reads the files. Raises `CannotStart`, which names an unusable file."""
        self._value = await asyncio.to_thread(self._read, None)
        if self._interval:
            self._watching = asyncio.create_task(self._watch(), name=f"watch {self._setting}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        self._owner.health.report(self._setting, None)

    async def _watch(self) -> None:
        failures = 0
        while True:
            await self._owner.clock.sleep(min(self._interval, _SECOND_LOOK) if failures == 1 else self._interval)
            try:
                await self._read_again()
            except CannotStart as error:
                failures += 1
                if failures == 2:
                    self._complain(error)
            else:
                failures = 0
                self._owner.health.report(self._setting, None)

    async def _read_again(self) -> None:
        old = self._value
        self._value = await asyncio.to_thread(self._read, old)
        if self._value != old:
            self._owner.logger.info("%s: the content changed; the new one is in use", self._setting)

    def _complain(self, error: CannotStart) -> None:
        self._owner.logger.warning("A changed file is unusable, the old content stays in use: %s", error)
        self._owner.health.report(self._setting, f"a changed file is unusable, the old content stays in use: {error}")
