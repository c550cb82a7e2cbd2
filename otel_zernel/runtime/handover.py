"""Listening sockets that stay open while a reload restarts their component: clients wait, and none is refused."""

import asyncio
import contextlib
import socket
from collections.abc import Collection
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary


class ListeningPlace(NamedTuple):
    """The place of a listening socket."""

    setting: str
    """The configuration key of the address. It begins with the path of the component."""
    address: Any
    """As the configuration has it, resolved: a host and a port."""


class Handover:
    """Passes the ports of a component to its next instance. There is one for the process, as for its ports."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[ListeningPlace, socket.socket] = WeakValueDictionary()
        self._held: dict[ListeningPlace, socket.socket] = {}
        self._releasing: asyncio.TimerHandle | None = None

    def opened(self, place: ListeningPlace, listener: socket.socket) -> None:
        """A component listens there."""
        self._open[place] = listener

    def hold(self, components: Collection[str]) -> None:
        """Keeps the ports of these components open, although they close their sockets now. `components` has paths."""
        self.release()
        prefixes = tuple(f"{path}::" for path in components)
        for place, listener in list(self._open.items()):
            if place.setting.startswith(prefixes) and listener.fileno() >= 0:
                with contextlib.suppress(OSError):  # without a free file descriptor, clients are refused for a moment
                    self._held[place] = listener.dup()

    def take(self, place: ListeningPlace) -> socket.socket | None:
        """The socket of the former instance, with the connections that wait there. None if there is no such socket."""
        return self._held.pop(place, None)

    def release_after(self, seconds: float) -> None:
        """Closes what no next instance has taken by then: it listens elsewhere, or not at all."""
        if self._held and self._releasing is None:
            self._releasing = asyncio.get_running_loop().call_later(seconds, self.release)

    def release(self) -> bool:
        """Closes what no next instance has taken. The result is whether there was something to close."""
        if self._releasing:
            self._releasing.cancel()
            self._releasing = None
        held, self._held = self._held, {}
        for listener in held.values():
            listener.close()
        return bool(held)


HANDOVER: Final = Handover()
