"""A proxy before a broker. It may end TLS, and speak with both ends first."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


@asynccontextmanager
async def proxy(
    port: int,
    broker: str,
    context: ssl.SSLContext | None = None,
    first: Callable[[Reader, Writer, Reader, Writer], Awaitable[bool]] | None = None,
) -> AsyncIterator[None]:
    """Passes connections to the port on to the broker. `first` speaks with both ends before, and may refuse."""
    host, _, broker_port = broker.rpartition(":")

    async def copy(reader: Reader, writer: Writer) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: Reader, writer: Writer) -> None:
        try:
            behind, to_broker = await asyncio.open_connection(host, int(broker_port))
        except OSError:  # it still starts
            writer.close()
            return
        try:
            if first is None or await first(reader, writer, behind, to_broker):
                await asyncio.gather(copy(reader, to_broker), copy(behind, writer))
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            to_broker.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    try:
        yield
    finally:
        server.close()
