"""A request reaches the most specific route, and every other request gets a sentence."""

import asyncio
from typing import Any

import pytest

from otel_zernel.component import ComponentConfig, Extension
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context
from otel_zernel_libraries.serving.api.answers import (
    ApiError,
    client_gone,
    json_answer,
    plain_answer,
    query_of,
    read_body,
)
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel_libraries.serving.api.server import api_server
from tests.api_server import FakeApiServer


@pytest.fixture
def server() -> FakeApiServer:
    return FakeApiServer()


def says(word: str) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await json_answer(send, {"route": word, **scope["path_params"]})

    return app


async def posted(scope: Any, receive: Any, send: Any) -> None:
    await json_answer(send, {"length": len(await read_body(receive, 10)), "query": query_of(scope)})


async def endless(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    await client_gone(receive)


async def silent(scope: Any, receive: Any, send: Any) -> None:
    await client_gone(receive)


async def deaf(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    await asyncio.Event().wait()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


WORKERS = [
    Route("/api/workers", says("all")),
    Route("/api/workers/{id}", says("one")),
    Route("/api/workers/{id}/tasks", says("tasks")),
    Route("/api/workers/lost", says("lost")),
    Route("/files/{path:path}", says("file")),
    Route("/api/tasks", posted, methods=("POST",)),
    Route("/api/tasks", says("tasks"), methods=("GET",)),
    Route("/ws", echo, kind="websocket"),
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/workers", {"route": "all"}),
        ("/api/workers/7?x=1", {"route": "one", "id": "7"}),
        ("/api/workers/lost", {"route": "lost"}),
        ("/api/workers/n1%2F12%2F99/tasks", {"route": "tasks", "id": "n1/12/99"}),
        ("/api/workers/%E2%82%AC", {"route": "one", "id": "€"}),
        ("/files/a/b.js", {"route": "file", "path": "a/b.js"}),
    ],
)
async def test_a_request_reaches_the_most_specific_route(server: FakeApiServer, path: str, expected: Any) -> None:
    with server.serve("exporters::a", WORKERS):
        assert (await server.get(path)).json == expected


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/nothing", 404, "nothing is served at /nothing; /openapi.json lists the paths"),
        ("GET", "/api/workers/", 404, "nothing is served at /api/workers/; /openapi.json lists the paths"),
        ("GET", "/files/..%2f..%2fetc/passwd", 404, "nothing is served"),
        ("GET", "/files/a\\..\\b", 404, "nothing is served"),
        ("GET", "/files/a%00", 404, "nothing is served"),
        ("GET", "/" * 60_000, 404, "nothing is served"),
        ("DELETE", "/api/workers", 405, "DELETE is not served at /api/workers; use GET, HEAD"),
        ("PUT", "/api/tasks", 405, "PUT is not served at /api/tasks; use POST, GET, HEAD"),
        ("GET", "/ws", 426, "/ws is served by WebSocket"),
    ],
)
async def test_every_other_request_gets_a_sentence(
    server: FakeApiServer, method: str, path: str, status: int, sentence: str
) -> None:
    with server.serve("exporters::a", WORKERS):
        answer = await server.request(method, path)
    assert answer.status == status
    assert answer.json["error"].startswith(sentence)
    assert ("allow" in answer.headers) == (status == 405)


async def test_a_websocket_without_a_route_is_denied(server: FakeApiServer) -> None:
    with server.serve("exporters::a", WORKERS):
        async with server.websocket("/api/workers") as connection:
            assert (await connection.next())["status"] == 404


async def test_a_body_has_a_bound_and_a_query_too(server: FakeApiServer) -> None:
    with server.serve("exporters::a", WORKERS):
        assert (await server.request("POST", "/api/tasks?a=1&a=2&b=", b"x" * 10)).json == {
            "length": 10,
            "query": {"a": "2", "b": ""},
        }
        answer = await server.request("POST", "/api/tasks", b"x" * 11)
        assert (answer.status, answer.json) == (413, {"error": "the body is longer than 10 bytes"})
        assert (await server.request("POST", "/api/tasks?" + "a=1&" * 101)).status == 400


async def test_a_head_request_gets_no_body_even_of_an_endless_answer(server: FakeApiServer) -> None:
    with server.serve("exporters::a", [Route("/api/workers", says("all")), Route("/stream", plain_twice)]):
        answer = await server.request("HEAD", "/api/workers")
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "15")
        assert (await server.request("HEAD", "/stream")).body == b""


async def plain_twice(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x", "more_body": True})


async def test_a_path_belongs_to_one_component(server: FakeApiServer) -> None:
    with server.serve("exporters::a", WORKERS):
        serve = server.serve("exporters::b", [Route("/free", echo), Route("/api/workers/{other}", echo)])
        with pytest.raises(CannotStart, match="exporters::b: exporters::a already serves /api/workers/"):
            serve.__enter__()
        assert (await server.get("/free")).status == 404
    with server.serve("exporters::b", WORKERS):
        assert (await server.get("/api/workers")).status == 200


async def test_one_component_cannot_have_a_path_twice(server: FakeApiServer) -> None:
    with pytest.raises(ValueError, match="exporters::a has /x twice"):
        server.serve("exporters::a", [Route("/x", echo), Route("/x", echo)]).__enter__()
    assert (await server.get("/x")).status == 404


@pytest.mark.parametrize("path", ["", "api", "/a{id}", "/{Id}", "/{rest:path}/x", "/{a:int}"])
def test_a_path_that_is_not_well_formed_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a path of a route"):
        Route(path, echo)


async def test_the_stream_of_a_component_that_leaves_has_an_end(server: FakeApiServer) -> None:
    serving = server.serve("exporters::a", [Route("/stream", endless), Route("/deaf", deaf), Route("/silent", silent)])
    serving.__enter__()
    async with server.stream("/stream") as one, server.stream("/deaf") as other, server.stream("/silent") as third:
        for connection in (one, other):
            assert await connection.start()
            assert await connection.part() == b"first"
        serving.__exit__(None, None, None)
        for connection in (one, other):
            assert await connection.next() == {"type": "http.response.body", "body": b""}
        assert (await third.start())[0] == 503
    assert (await server.get("/stream")).status == 503
    assert (await server.get("/other")).status == 404


async def test_the_websocket_of_a_component_that_leaves_is_closed_as_at_a_restart(server: FakeApiServer) -> None:
    serving = server.serve("exporters::a", WORKERS)
    serving.__enter__()
    async with server.websocket("/ws") as connection:
        assert await connection.next() == {"type": "websocket.accept"}
        connection.say("hello")
        assert await connection.next() == {"type": "websocket.send", "text": "hello"}
        serving.__exit__(None, None, None)
        assert await connection.next() == {"type": "websocket.close", "code": 1012}


async def test_a_component_that_is_cancelled_leaves_its_websockets_too(server: FakeApiServer) -> None:

    async def receiver() -> None:
        with server.serve("receivers::a", WORKERS):
            await asyncio.Event().wait()

    running = asyncio.create_task(receiver())
    await asyncio.sleep(0)
    async with server.websocket("/ws") as connection:
        assert await connection.next() == {"type": "websocket.accept"}
        running.cancel()
        assert await connection.next() == {"type": "websocket.close", "code": 1012}


async def test_a_route_that_fails_answers_500_and_hides_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise OSError("secret")

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        raise ApiError(404, "no such worker")

    server = FakeApiServer()
    with server.serve("exporters::a", [Route("/fails", fails), Route("/refuses", refuses)]):
        answer = await server.get("/fails")
        assert (await server.get("/refuses")).json == {"error": "no such worker"}
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert "The API's route /fails failed" in caplog.text


async def test_numbers_that_are_not_json_are_refused(server: FakeApiServer) -> None:

    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        await json_answer(send, {"x": float("nan")})

    async def plain(scope: Any, receive: Any, send: Any) -> None:
        await plain_answer(send, b"ok", "text/plain; charset=utf-8")

    with server.serve("exporters::a", [Route("/wrong", wrong), Route("/plain", plain)]):
        assert (await server.get("/wrong")).status == 500
        assert (await server.get("/plain")).body == b"ok"


def test_a_component_finds_the_extension_or_says_what_is_wrong(server: FakeApiServer) -> None:
    other = Extension(ComponentConfig(), make_context("extensions", "other"))
    context = make_context("exporters", "live", extensions={"api": server, "other": other})
    assert api_server("api", context, "exporters::live::api") is server
    with pytest.raises(CannotStart, match="exporters::live::api: extension other serves no API; name an extension"):
        api_server("other", context, "exporters::live::api")
    with pytest.raises(CannotStart, match="extension none is not enabled"):
        api_server("none", context, "exporters::live::api")
