"""The output of a task from Kubernetes, which goes on where a broken connection ended.

Kubernetes puts a time before each line. `sinceTime` has whole seconds on its way to the kubelet, so a new connection
repeats lines. They are dropped here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel.errors import NoAnswer
from otel_zernel_extensions.tasks.engines.engine import LogsGone
from otel_zernel_extensions.tasks.engines.kubernetes.jobs import CONTAINER
from otel_zernel_extensions.tasks.engines.kubernetes.observing import Pod, seconds
from otel_zernel_libraries.clients.json_client import JsonClient, Stream
from otel_zernel_libraries.clients.kubernetes.collection import unavailable

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
            self._time = time
            self._complete = 0
            self._partial = 0
            self._index = 0
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


_WAIT: Final = 1.0
"""Seconds between two looks for a container that has not started, and before a broken connection is made again."""
_SILENCE: Final = 3600.0
"""Seconds: a job may be silent for long. TCP keep-alives find a dead connection."""
_FAILURES: Final = 10
"""Connections without a new byte, one after the other, until the reader gets an error."""


class Logs:
    """Reads the log of one pod."""

    def __init__(self, client: JsonClient, namespace: str, find: Callable[[], Awaitable[Pod | None]], clock: Clock):
        """`find` reads the task's pod from the server; None if it has none yet. It raises `LogsGone` if it is gone."""
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._find = find
        self._clock = clock
        self._lines = LogLines()

    async def read(self, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        """The output, in pieces. Raises `LogsGone` before the first one, and `NoAnswer`."""
        pod = await self._started(follow)
        failures = 0
        while True:
            # Read once more after the end: a followed stream may break before the last lines.
            ended = pod.end is not None
            before = self._lines.since
            problem = None
            try:
                async with self._client.stream(
                    f"{self._path}/{pod.name}/log", self._params(follow, tail), _SILENCE
                ) as stream:
                    self._check(stream, before)
                    async for piece in stream.pieces():
                        for part in self._lines.feed(piece):
                            yield part
            except NoAnswer as error:
                problem = error
            if problem is None and (ended or not follow):
                for part in self._lines.finish():
                    yield part
                return
            failures = failures + 1 if problem and self._lines.since == before else 0
            if problem and (failures >= _FAILURES or not follow):
                raise problem
            await self._clock.sleep(_WAIT)
            self._lines.reconnect()
            try:
                pod = await self._find() or pod
            except NoAnswer:
                continue
            except LogsGone:  # a cancelled task takes its pod and its log with it
                return

    def _params(self, follow: bool, tail: int | None) -> dict[str, str]:
        params = {"container": CONTAINER, "timestamps": "true", "follow": str(follow).lower()}
        if since := self._lines.since:
            params["sinceTime"] = since
        elif tail is not None:
            params["tailLines"] = str(tail)
        return params

    async def _started(self, follow: bool) -> Pod:
        """The pod, once its container has started."""
        while True:
            pod = await self._find()
            if pod and (pod.running or pod.started is not None):
                return pod
            if pod and (pod.end or pod.hopeless):
                reason = pod.end.reason if pod.end else pod.reason
                raise LogsGone(f"the task never started: {reason or 'its pod failed'}")
            if not follow:
                raise LogsGone("the task has not started")
            await self._clock.sleep(_WAIT)

    def _check(self, stream: Stream, before: str | None) -> None:
        refusal = stream.refusal
        if refusal is None:
            return
        if refusal.status in (400, 404) and before is None:
            raise LogsGone(f"Kubernetes has no output: {refusal.body.get('message') or refusal.text}")
        raise unavailable(refusal, "read the log")
