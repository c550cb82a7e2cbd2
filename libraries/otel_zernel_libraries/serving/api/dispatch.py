"""The ASGI application that hands each request to its route, and answers where no route does."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from otel_zernel_libraries.serving.api.answers import ApiError, ClientGone, Headers, error_answer
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel_libraries.serving.api.table import Match, RouteTable, raw_path_of

Scope = MutableMapping[str, Any]
_GRACE: Final = 0.5
"""Seconds between the disconnection of a request and its cancellation, when its route is left."""
_AWAY: Final = 10.0
"""Seconds for which the routes of a component that has left may come back."""
_RESTART: Final = 1012
"""The close code of a WebSocket whose server restarts (RFC 6455, registry of close codes)."""
_NORMAL: Final = 1000
"""The close code of a WebSocket that has nothing more to say."""
_logger = logging.getLogger("otel_zernel_libraries.serving.api")


class Dispatcher:
    """Serves a table of routes. Sets `scope["route"]` to the path of the route, with its placeholders."""

    def __init__(
        self,
        admit: Callable[[Scope], Awaitable[None]] | None = None,
        permit: Callable[[Route, Scope], Awaitable[None]] | None = None,
        is_complete: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`admit(scope)` raises `ApiError` if a request must not be answered, `permit(route, scope)` if a client may
        not use its route."""
        self.table = RouteTable()
        self._admit = admit
        self._permit = permit
        self._is_complete = is_complete
        self._monotonic = monotonic
        self._left: list[tuple[float, RouteTable]] = []
        """Routes that were served, and until when they count as away and not as unknown."""
        self.running: set[RunningRequest] = set()

    @contextmanager
    def having(self, owner: str, routes: Iterable[Route]) -> Iterator[None]:
        """Serves the routes while it is entered, see `ApiServer.serve`."""
        served = [*routes]
        try:
            with self.table.having(owner, served):
                try:
                    yield
                finally:
                    self._remember(served)
        finally:  # a receiver leaves its routes because it is cancelled
            for request in [request for request in self.running if any(request.route is route for route in served)]:
                request.leave()

    def _remember(self, routes: Iterable[Route]) -> None:
        now = self._monotonic()
        self._left = [(until, table) for until, table in self._left if now < until]
        self._left.append((now + _AWAY, RouteTable.of(routes)))

    def leave_all(self) -> None:
        """Ends all requests as if their routes were left."""
        for request in self.running:
            request.leave()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        match = self.table.match(scope["type"], scope.get("method", ""), raw_path_of(scope))
        if match.path:
            scope["route"] = match.path
        request = RunningRequest(match.route, scope, receive, send)
        self.running.add(request)
        try:
            await request.run(lambda: self._chosen(match, scope))
        finally:
            self.running.discard(request)

    async def _chosen(self, match: Match, scope: Scope) -> Route:
        """The route that answers. Raises `ApiError`."""
        if self._admit:
            await self._admit(scope)
        if match.route is None:
            raise _away(self._is_complete()) if self._may_return(match, scope) else _unserved(match, scope)
        if self._permit:
            await self._permit(match.route, scope)
        scope["path_params"] = match.parameters
        return match.route

    def _may_return(self, match: Match, scope: Scope) -> bool:
        """Whether a component may serve this path soon, at the start of the collector or after a reload.

        A client must not take such a path for one that does not exist, such as that of an unknown task.
        """
        if match.path:
            return False
        known = (scope["type"], scope.get("method", ""), raw_path_of(scope))
        now = self._monotonic()
        return not self._is_complete() or any(now < until and table.match(*known).path for until, table in self._left)


class RunningRequest:
    """One request and its answer. Without a route, it only gets an error."""

    def __init__(self, route: Route | None, scope: Scope, receive: Any, send: Any) -> None:
        self.route = route
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_http = scope["type"] == "http"
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has a result if the route is not served any more."""
        self._task = asyncio.current_task()
        self._cutting: asyncio.TimerHandle | None = None
        self._was_cut = False
        self._started = False
        """Whether the answer has begun; for a WebSocket, whether the handshake is answered."""
        self._complete = False
        self._has_length = False

    async def run(self, choose: Callable[[], Awaitable[Route]]) -> None:
        """Runs the application of the chosen route. Its errors become answers."""
        try:
            route = await choose()
            await route.app(self._scope, self.receive, self.send)
        except ApiError as error:
            await self._fail(error.status, str(error), error.headers)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            if not self._was_cut or self._has_length or not self._task or self._task.uncancel():
                raise
        except Exception:
            _logger.exception("The API's route %s failed", self._scope.get("route", ""))
            await self._fail(500, "the collector failed to answer; its log has the reason")
        finally:
            if self._cutting:
                self._cutting.cancel()
        await self._end()

    def leave(self) -> None:
        """Disconnects the request, and cancels it a little later."""
        if not self._left.done():
            self._left.set_result(None)
            self._cutting = asyncio.get_running_loop().call_later(_GRACE, self._cut)

    async def receive(self) -> Any:
        """As the server's. After `leave`, it returns the disconnection."""
        if not self._left.done():
            receiving = asyncio.ensure_future(self._receive())
            try:
                await asyncio.wait([receiving, self._left], return_when=asyncio.FIRST_COMPLETED)
                if receiving.done():
                    return receiving.result()
            finally:
                receiving.cancel()
        return {"type": "http.disconnect"} if self._is_http else {"type": "websocket.disconnect", "code": _RESTART}

    async def send(self, message: Any) -> None:
        """As the server's. A WebSocket without a client raises `ClientGone`.

        For HEAD, the body is left out, and its second part raises `ClientGone`, too.
        """
        type_ = message["type"]
        if type_ == "http.response.start":
            self._started = True
            self._has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
        elif type_ == "http.response.body":
            await self._send_body(message)
            return
        elif type_ == "websocket.http.response.body":
            self._complete = not message.get("more_body", False)
        elif type_ in ("websocket.accept", "websocket.http.response.start"):
            self._started = True
        elif type_ == "websocket.close":
            self._started = self._complete = True
        try:
            await self._send(message)
        except OSError as error:  # the server of WebSockets raises it
            raise ClientGone from error

    async def _send_body(self, message: Any) -> None:
        if self._scope["method"] != "HEAD":
            self._complete = not message.get("more_body", False)
            await self._send(message)
        elif not self._complete:
            self._complete = True
            await self._send({"type": "http.response.body", "body": b""})
        else:
            raise ClientGone

    def _cut(self) -> None:
        if self._task:
            self._was_cut = True
            self._task.cancel()

    async def _end(self) -> None:
        """Completes the answer of a route that is not served any more, and closes a WebSocket."""
        has_left = self._left.done()
        if not self._started and has_left:
            await self._fail(503, _STOPPED, _RETRY)
        elif self._complete or not self._started:
            return
        elif not self._is_http:
            with suppress(ClientGone):
                await self.send({"type": "websocket.close", "code": _RESTART if has_left else _NORMAL})
        elif has_left and not self._has_length:
            await self.send({"type": "http.response.body", "body": b""})

    async def _fail(self, status: int, sentence: str, headers: Headers = ()) -> None:
        """Answers with an error, if no answer has begun."""
        if not self._started:
            await error_answer(self.send, status, sentence, headers, http=self._is_http)


_RETRY: Final = ((b"retry-after", b"1"),)
_STOPPED: Final = "the component that answers here has stopped; try again later"


def _away(is_complete: bool) -> ApiError:
    sentence = (
        _STOPPED if is_complete else "the collector starts or stops, and does not serve this path now; try again later"
    )
    return ApiError(503, sentence, _RETRY)


def _unserved(match: Match, scope: Scope) -> ApiError:
    """The error for a request that no route answers."""
    path = f"{scope['path']:.200}"
    if scope["type"] == "websocket" or not match.path:
        return ApiError(404, f"nothing is served at {path}; /openapi.json lists the paths")
    if not match.methods:
        return ApiError(426, f"{path} is served by WebSocket", ((b"upgrade", b"websocket"),))
    methods = dict.fromkeys(match.methods)
    allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
    sentence = f"{scope['method']:.20} is not served at {path}; use {allowed}"
    return ApiError(405, sentence, ((b"allow", allowed.encode()),))
