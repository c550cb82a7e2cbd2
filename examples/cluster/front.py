"""One port for all gateways: each connection goes to the next gateway that answers."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

Addresses = Sequence[tuple[str, int]]


class UnusablePort(Exception):
    """The port is in use, or not allowed."""


class Front:
    """Forwards connections to localhost, in a thread."""

    def __init__(self, port: int, gateways: Addresses) -> None:
        self._port, self._gateways, self._turn = port, gateways, count()

    def start(self) -> None:
        """Listens until the process ends. Raises `UnusablePort`."""
        try:
            listening = socket.create_server(("localhost", self._port))
        except OSError as error:
            raise UnusablePort(f"port {self._port}: {error.strerror}; choose another one with --port") from error
        threading.Thread(target=lambda: asyncio.run(self._serve(listening)), daemon=True).start()

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._forward, sock=listening)
        await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(self._turn)
        for offset in range(len(self._gateways)):
            host, port = self._gateways[(first + offset) % len(self._gateways)]
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    inner, outer = await asyncio.open_connection(host, port)
                await asyncio.gather(_copy(reader, outer), _copy(inner, writer))
                return
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
