"""A receiver for tests: senders write batches to a unix socket, and get one byte for each when it is safe.

A frame is the length in 4 bytes, big-endian, and an encoded `MetricsData`. The answer is `ACCEPTED` or `REFUSED`.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from pathlib import Path

from otel_zernel.batch import Batch
from otel_zernel.component import ComponentConfig, Emit, Receiver
from otel_zernel.errors import Refused

ACCEPTED, REFUSED = b"+", b"-"
_LENGTH = struct.Struct(">I")


class IntakeConfig(ComponentConfig):
    """Where to listen."""

    path: Path


class Intake(Receiver):
    """Emits one batch at a time for each connection."""

    Config = IntakeConfig

    async def run(self, emit: Emit) -> None:
        """Listens until cancelled."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                    batch = Batch.from_bytes(metrics=await reader.readexactly(length))
                    try:
                        await emit(batch)
                        writer.write(ACCEPTED)
                    except Refused:
                        writer.write(REFUSED)

        self.config.path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(serve, self.config.path)
        async with server:
            await server.serve_forever()


class IntakeSender:
    """One connection to an `Intake`."""

    def __init__(self, path: Path) -> None:
        """Connects. Raises `OSError` if nothing listens."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def send(self, encoded: bytes) -> bool:
        """Whether the batch was acknowledged. Raises `OSError` or `EOFError` if the answer does not arrive."""
        self._socket.sendall(_LENGTH.pack(len(encoded)) + encoded)
        answer = self._socket.recv(1)
        if not answer:
            raise EOFError("the collector ended")
        return answer == ACCEPTED

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()
