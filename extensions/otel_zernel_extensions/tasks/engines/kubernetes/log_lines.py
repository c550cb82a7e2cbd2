"""The lines of a pod's log, with the times that Kubernetes puts before them, so that a broken stream can go on.

`sinceTime` has whole seconds on its way to the kubelet, so a new connection repeats lines. They are dropped here.
"""

from collections.abc import Iterator
from typing import Final

from otel_zernel_extensions.tasks.engines.kubernetes.observing import seconds

_PIECE: Final = 64 << 10
"""Bytes of the largest piece."""


class LogLines:
    """Takes the bytes of one connection after the other, and gives each byte of the log once, without the times.

    Its place in the log is a time, the number of complete lines with this time, and some bytes of the next one.
    """

    def __init__(self) -> None:
        self._time = b""
        self._complete = 0
        self._partial = 0
        self.reconnect()

    @property
    def since(self) -> str | None:
        """The time from which the next connection has to repeat; None if there was no line yet."""
        return self._time.decode() or None

    def reconnect(self) -> None:
        """Prepares for a connection that begins with the lines of `since`, or with older ones."""
        self._rest = b""
        self._inside = False
        """Whether the front of the current line was taken from `_rest`, and its end has not arrived."""
        self._wanted = True
        """Whether the current line was not given as a whole before."""
        self._timed = False
        self._index = -1
        """Of the current line, among those with the same time on this connection."""
        self._seen = 0
        """Bytes of the current line on this connection."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The new lines, as far as they have arrived, in pieces of at most 64 KiB."""
        self._rest += data
        while (end := self._rest.find(b"\n") + 1) or len(self._rest) >= _PIECE:
            part, self._rest = self._rest[: end or _PIECE], self._rest[end or _PIECE :]
            yield from self._taken(part, ended=bool(end))

    def finish(self) -> Iterator[bytes]:
        """The last line of a complete log, if it has no line break at its end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._taken(rest, ended=False)

    def _taken(self, part: bytes, ended: bool) -> Iterator[bytes]:
        content = part if self._inside else self._begin(part)
        self._inside = not ended
        if self._wanted:
            new = self._new(content, ended) if self._timed else content
            for start in range(0, len(new), _PIECE):
                yield new[start : start + _PIECE]

    def _begin(self, part: bytes) -> bytes:
        """The part of a line behind its time."""
        time, _, content = part.partition(b" ")
        self._timed = seconds(time.decode("ascii", "replace")) is not None
        self._seen = 0
        if not self._timed:  # the kubelet's own messages
            self._wanted = True
            return part
        if _padded(time) > _padded(self._time):
            self._time, self._complete, self._partial, self._index = time, 0, 0, 0
        elif time == self._time:
            self._index += 1
        self._wanted = time == self._time and self._index >= self._complete
        return content

    def _new(self, content: bytes, ended: bool) -> bytes:
        new = content[max(0, self._partial - self._seen) :]
        self._seen += len(content)
        self._partial = max(self._partial, self._seen)
        if ended:
            self._complete, self._partial = self._complete + 1, 0
        return new


def _padded(time: bytes) -> bytes:
    """`2026-01-02T03:04:05.1Z` with 9 digits of a second: Go leaves out zeros at the end."""
    whole, _, fraction = time.rstrip(b"Z").partition(b".")
    return whole + b"." + fraction.ljust(9, b"0")
