"""A server of connections: accepts them, bounds their number, and ends them at its own end."""

import asyncio
import logging
import math
import resource
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol

from otel_zernel.component import Logger
from otel_zernel.runtime.tasks import cancel
from otel_zernel_libraries.serving.misdirected import Misdirected

_OUT_OF_FILES: Final = 0.1
"""Seconds until the next attempt if the system has no file descriptor for a new connection."""
_CLOSING_STEPS: Final = 6
"""Steps of the event loop in which a connection is closed that was aborted, or whose socket was shut down."""


_FILES_OF_ALL: Final = 0.8
"""The share of the process's open files that the connections of all servers may take together. The rest is for files,
and for connections to other machines."""
_running: Final[set["Server"]] = set()
"""The servers of this process that serve."""


class ServedConnection(Protocol):
    """An open connection."""

    def abort(self) -> None:
        """Closes the connection at once."""


class Server(ABC):
    """Serves on listening sockets while `serving` is entered. A subclass makes the connections of its protocol."""

    name: str
    """Of the protocol, for the names of tasks."""

    def __init__(
        self,
        logger: Logger | logging.Logger,
        tls: Callable[[], ssl.SSLContext] | None,
        misdirected: Misdirected,
        *,
        connections: int,
        files: float,
        handshake_time: float,
    ) -> None:
        """`tls` returns the context for the next connection; None serves without TLS.

        `connections` is the most that are open at a time, and `files` their share of the process's open files.
        """
        self._logger = logger
        self._tls = tls
        self._misdirected = misdirected
        self._most = int(min(connections, max(1, _most_files() * files)))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handshake_time = handshake_time
        self._opening: dict[asyncio.Task[None], socket.socket | None] = {}
        """The connections whose TLS handshake is not finished, the oldest first; the socket once it has a transport."""
        self._refusing: dict[asyncio.Task[None], socket.socket | None] = {}
        """The connections that will get a refusal. They take no place of another one, so none takes theirs."""

    @property
    @abstractmethod
    def connections(self) -> Collection[ServedConnection]:
        """The open connections."""

    @abstractmethod
    async def _factory(
        self, client: socket.socket, peer: Any, opened: Callable[[], None], *, surplus: bool
    ) -> Callable[[], asyncio.Protocol]:
        """Makes the connection of a new client, which calls `opened` after the TLS handshake.

        A `surplus` connection only gets a refusal.
        """

    @abstractmethod
    def _forget_idle(self) -> ServedConnection | None:
        """Removes the connection from `connections` that is idle longest, and may be closed without harm."""

    @abstractmethod
    async def _sweep(self) -> None:
        """Ends connections that take too long, until cancelled."""

    @abstractmethod
    async def _end(self) -> None:
        """Lets running requests finish, and closes every connection."""

    def _can_refuse(self, count: int) -> bool:
        """Whether a client that finds `count` connections and no room gets a refusal. Else its connection is closed."""
        return False

    @asynccontextmanager
    async def serving(
        self, listeners: Sequence[socket.socket], stopping: Callable[[], None] = lambda: None
    ) -> AsyncIterator[None]:
        """Serves, and closes the listening sockets at the end. Then `stopping` is called before the last answers."""
        self._loop = asyncio.get_running_loop()
        _running.add(self)
        works = [*map(self._accept, listeners), self._sweep()]
        tasks = [asyncio.create_task(work, name=f"{self.name} server") for work in works]
        try:
            yield
        finally:
            _running.discard(self)
            await cancel(*tasks)
            opening = {**self._opening, **self._refusing}
            for opener, client in opening.items():
                _give_up(opener, client)
            await asyncio.gather(*opening, return_exceptions=True)
            for listener in listeners:
                listener.close()
            stopping()
            await self._end()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(listener)
            except OSError as error:
                self._logger.warning("Cannot accept a connection; trying again: %s", error.strerror)
                self._make_room()
                await asyncio.sleep(_OUT_OF_FILES)
                continue
            count, together = self._count, self._together()
            is_crowded = sum(server._count for server in together) >= _most_files() * _FILES_OF_ALL
            is_full = is_crowded or count >= self._most
            surplus = is_full and not self._make_room()
            if surplus and is_crowded:  # a probe of the health must find a place
                surplus = not any(server._make_room() for server in together)
            if surplus and (is_crowded or not self._can_refuse(count)):
                client.close()
                continue
            if is_full:
                await _closing(client)
            opening = asyncio.create_task(self._open(client, peer, surplus=surplus), name=f"{self.name} connection")
            (self._refusing if surplus else self._opening)[opening] = None
            opening.add_done_callback(partial(self._ended, client))

    @property
    def _count(self) -> int:
        return len(self.connections) + len(self._opening) + len(self._refusing)

    def _together(self) -> "list[Server]":
        """The servers of this event loop, that with the most connections first."""
        servers = (server for server in _running if server._loop is self._loop)
        return sorted(servers, key=lambda server: server._count, reverse=True)

    async def _open(self, client: socket.socket, peer: Any, *, surplus: bool) -> None:
        task = asyncio.current_task()
        make = await self._factory(client, peer, partial(self._end_opening, task), surplus=surplus)
        tls: dict[str, Any] = {}
        if self._tls:
            tls = {
                "ssl": self._tls(),
                "ssl_handshake_timeout": self._handshake_time,
                "ssl_shutdown_timeout": 1.0,
            }
        for waiting in (self._opening, self._refusing):
            if task in waiting:
                waiting[task] = client
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, client, **tls)
        except OSError as error:  # also ssl.SSLError and TimeoutError
            if task in self._opening or task in self._refusing:  # else the server has ended it
                self._logger.debug("A connection failed before its first request: %s", error)
                self._misdirected.failed_handshake(error, peer)

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        """A task that is cancelled has no transport, so its socket is closed here."""
        self._end_opening(task)
        if task.cancelled():
            client.close()

    def _end_opening(self, task: asyncio.Task[None] | None) -> None:
        if task:
            self._opening.pop(task, None)
            self._refusing.pop(task, None)

    def _make_room(self) -> bool:
        """Closes the connection that is idle longest, or that has not finished its handshake longest.

        It is forgotten at once: the next connection of a burst must not choose it again.
        """
        if idle := self._forget_idle():
            idle.abort()
        elif opening := next(iter(self._opening), None):
            _give_up(opening, self._opening.pop(opening))
        else:
            return False
        return True

    async def _until_closed(self, seconds: float, pause: float) -> None:
        """Returns when all connections are closed, or after some seconds. Looks at them after each `pause`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.connections:  # noqa: ASYNC110  # a connection ends in a callback of its transport
                    await asyncio.sleep(pause)


def _most_files() -> float:
    """The files that the process may open now: receivers of many connections raise the number."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if files == resource.RLIM_INFINITY else files


def _give_up(opening: asyncio.Task[None], client: socket.socket | None) -> None:
    """Ends a connection that opens.

    Its task must not be cancelled once it has a transport: uvloop then closes the transport of a connection that was
    made in the same step, and the connection never hears of it.
    """
    if client is None:
        opening.cancel()
        return
    with suppress(OSError):  # the client was faster
        client.shutdown(socket.SHUT_RDWR)


async def _closing(client: socket.socket) -> None:
    """Returns when the connection that made room is closed. Else a burst would take a file for each of its clients.

    `client` is the new connection, which is closed if this is cancelled.
    """
    try:
        for _ in range(_CLOSING_STEPS):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        client.close()
        raise


def is_no_cancellation(record: logging.LogRecord) -> bool:
    """A filter of logs: False for the traceback that uvicorn logs if the server's end cancels a request."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
