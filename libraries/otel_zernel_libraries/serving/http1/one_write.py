"""Sends the head of an answer together with the first part of its body: one packet, and one system call less."""

import asyncio
from typing import Final

_INTERIM: Final = b"HTTP/1.1 1"
"""How an interim answer begins (100 Continue). Its client waits for it, and no body follows."""
_JOINED: Final = 64 << 10
"""Bytes. A larger part of a body is written by itself, since to copy it would cost more than a system call."""


class HeadWithBody:
    """The transport of one answer. Its head waits for the first part of the body, within one turn of the event loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._has_head = False

    def write(self, data: bytes) -> None:
        """Keeps the head, and writes everything else."""
        if self._has_head or data.startswith(_INTERIM):
            self._write(data)
            return
        self._head, self._has_head = data, True
        self._loop.call_soon(self._write, b"")  # if the application waits before it sends a body

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            if len(data) <= _JOINED:
                data = head + data
            else:
                self._transport.write(head)
        if data:
            self._transport.write(data)

    def close(self) -> None:
        """Writes the head if it still waits, and closes."""
        self._write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the transport closes or has closed."""
        return self._transport.is_closing()
