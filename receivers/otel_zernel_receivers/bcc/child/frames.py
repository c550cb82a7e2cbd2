"""The messages between the collector and the child: 4 bytes with the length, big-endian, then JSON.

The collector writes the first one, `Request` in `main`. After that, each request has one answer.
"""

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">I")
LARGEST = 16 * 1024 * 1024
"""Bytes of a message. A child that announces more is faulty."""


def frame(message: Any) -> bytes:
    """The message with its header."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(body)) + body


class Channel:
    """The child's side: stdin and stdout, of which BCC and LLVM get no part."""

    def __init__(self) -> None:
        self._input = os.dup(0)
        self._output = os.dup(1)
        os.dup2(2, 1)  # BCC prints on stdout

    def receive(self) -> Any:
        """The next message, or None when the collector has gone."""
        header = self._exactly(HEADER.size)
        body = self._exactly(HEADER.unpack(header)[0]) if header else b""
        return json.loads(body) if body else None

    def send(self, message: Any) -> None:
        """Writes one message. Blocks until the collector reads."""
        left = memoryview(frame(message))
        while left:
            left = left[os.write(self._output, left) :]

    def _exactly(self, size: int) -> bytes:
        """This many bytes, or none at the end of the input."""
        parts = bytearray()
        while len(parts) < size:
            part = os.read(self._input, size - len(parts))
            if not part:
                return b""
            parts += part
        return bytes(parts)
