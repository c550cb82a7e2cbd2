"""Server-sent events, as the HTML standard defines them (9.2.6), from pieces of a response."""

from typing import Final, NamedTuple

from otel_zernel.errors import DecodeError

MOST_BYTES: Final = 64 << 20
"""Bytes of one event. The state of 1,024 ranks has about 16 MB."""


class ServerSentEvent(NamedTuple):
    """An event. `id` is empty if it has none."""

    type: str
    id: str
    data: bytes


class EventParser:
    """Splits a stream into events. Comments and unknown fields are ignored."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._searched = 0
        self._type = ""
        self._id = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """The events that are complete now. Raises `DecodeError` if an event is too large."""
        self._held += piece
        events = []
        begin = 0
        while (end := self._held.find(b"\n", max(begin, self._searched))) >= 0:
            line = bytes(self._held[begin:end]).removesuffix(b"\r")
            begin = end + 1
            if line:
                self._add(line)
            elif (event := self._taken()) is not None:
                events.append(event)
        del self._held[:begin]
        self._searched = len(self._held)
        if self._size + len(self._held) > self._most_bytes:
            raise DecodeError(f"an event has more than {self._most_bytes >> 20} MiB")
        return events

    def _add(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _taken(self) -> ServerSentEvent | None:
        found = ServerSentEvent(self._type or "message", self._id, b"\n".join(self._data)) if self._data else None
        self._type = ""
        self._data = []
        self._size = 0
        return found
