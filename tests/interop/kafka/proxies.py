"""Proxies before a broker: one ends TLS, one checks SASL credentials and passes everything else on."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_REFUSED = 58
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
        behind, to_broker = await asyncio.open_connection(host, int(broker_port))
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


async def _frame(reader: Reader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@dataclass
class SaslCheck:
    """Takes the credentials of each connection, and accepts the expected ones."""

    mechanism: str
    expected: bytes
    seen: set[bytes] = field(default_factory=set)

    async def __call__(self, reader: Reader, writer: Writer, behind: Reader, to_broker: Writer) -> bool:
        """Answers until the client is authenticated. Requests of another kind, such as ApiVersions, are passed on."""
        while True:
            request = await _frame(reader)
            api, version, correlation = int.from_bytes(request[:2]), int.from_bytes(request[2:4]), request[4:8]
            if api == SASL_HANDSHAKE:
                name = self.mechanism.encode()
                listed = (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name
                writer.write(_framed(correlation + b"\0\0" + listed))
            elif api == SASL_AUTHENTICATE:
                credentials = request[10 + int.from_bytes(request[8:10]) + 4 :]
                self.seen.add(credentials)
                accepted = credentials == self.expected
                code = (0 if accepted else _REFUSED).to_bytes(2, "big")
                lifetime = bytes(8) if version >= 1 else b""
                writer.write(_framed(correlation + code + b"\xff\xff" + bytes(4) + lifetime))
                await writer.drain()
                return accepted
            else:
                to_broker.write(_framed(request))
                writer.write(_framed(await _frame(behind)))
