"""The output of a task from Kubernetes, which goes on where a broken connection ended."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from otel_zernel.clock import Clock
from otel_zernel.errors import NoAnswer
from otel_zernel_extensions.tasks.engines.engine import LogsGone
from otel_zernel_extensions.tasks.engines.kubernetes.jobs import CONTAINER
from otel_zernel_extensions.tasks.engines.kubernetes.log_lines import LogLines
from otel_zernel_extensions.tasks.engines.kubernetes.observing import Pod
from otel_zernel_libraries.clients.json_client import JsonClient, Stream
from otel_zernel_libraries.clients.kubernetes.collection import unavailable

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
