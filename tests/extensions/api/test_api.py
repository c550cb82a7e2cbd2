"""The api extension serves the routes of components to foreign clients: httpx, websockets, curl."""

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest
import websockets
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from websockets.asyncio.client import connect

from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, until
from tests.exporters.otlp.certificates import Authority
from tests.extensions.api.serving import ROUTES, Keeper, running
from tests.otlp import metrics_in


async def test_routes_of_several_components_are_on_one_address() -> None:
    clock = FakeClock()
    async with running(clock=clock) as api, httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        with api.serve("exporters::a", ROUTES[:2]), api.serve("receivers::b", ROUTES[2:]):
            assert (await client.get("/api/hello")).json() == {"hello": "world"}
            assert (await client.get("/api/hello/a%2Fb%20c")).json() == {"hello": "a/b c"}
            assert (await client.post("/api/tasks", content=b"x" * 100)).json() == {"length": 100}
            assert (await client.post("/api/tasks", content=b"x" * 101)).status_code == 413
            head = await client.head("/api/hello")
            assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "17")
        assert (await client.get("/nothing")).status_code == 404
        gone = await client.get("/api/hello")
        assert (gone.status_code, gone.headers["retry-after"]) == (503, "1")
        assert (await client.get("/api/hello/a")).status_code == 503
        clock.advance(11)
        assert (await client.get("/api/hello")).status_code == 404


async def test_a_path_is_not_unknown_while_the_collector_starts_or_stops() -> None:
    async with running(is_up=False) as api, httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        early = await client.get("/api/hello")
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        assert "the collector starts or stops, and does not serve this path now; try again later" in early.text
        with api.serve("exporters::a", ROUTES):
            assert (await client.get("/api/hello")).status_code == 200
        api.context.health.available(api.context.clock.time_ns())
        assert (await client.get("/nothing")).status_code == 404


@pytest.mark.parametrize(("path", "start"), [("/api/hello", b'{"hello":"world"}'), ("/api/stream", b"data: first\n\n")])
async def test_curl_gets_an_answer_and_a_stream(path: str, start: bytes) -> None:
    async with running() as api:
        with api.serve("exporters::a", ROUTES):
            command = ["curl", "--silent", "--no-buffer", f"http://{api.address}{path}"]
            curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            try:
                assert curl.stdout
                assert await curl.stdout.readexactly(len(start)) == start
            finally:
                with suppress(ProcessLookupError):
                    curl.kill()
                await curl.wait()


async def test_a_stream_is_sent_at_once_and_its_end_is_noticed() -> None:
    async with running() as api, httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        with api.serve("exporters::a", ROUTES):
            async with client.stream("GET", "/api/stream") as answer:
                assert await anext(answer.aiter_bytes()) == b"data: first\n\n"
                assert len(api.running_requests) == 1
            await until(lambda: not api.running_requests)


async def test_the_end_of_a_component_ends_its_stream_and_its_websocket_in_order() -> None:
    async with running() as api, httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        serving = api.serve("exporters::a", ROUTES)
        serving.__enter__()
        async with client.stream("GET", "/api/stream") as answer, connect(f"ws://{api.address}/api/ws") as socket:
            parts = answer.aiter_bytes()
            assert await anext(parts) == b"data: first\n\n"
            await socket.send("hi")
            assert await socket.recv() == "hi"
            serving.__exit__(None, None, None)
            assert [part async for part in parts] == [b"data: last\n\n"]
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd
            assert closed.value.rcvd.code == 1012
        assert (await client.get("/healthz")).status_code == 200


async def test_the_end_of_the_extension_ends_all_streams() -> None:
    async with AsyncExitStack() as stack:
        async with running() as api:
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://{api.address}"))
            stack.enter_context(api.serve("exporters::a", ROUTES))
            answer = await stack.enter_async_context(client.stream("GET", "/api/stream"))
            parts = answer.aiter_bytes()
            await anext(parts)
        assert [part async for part in parts] == [b"data: last\n\n"]
        assert not api.running_requests


async def test_health_is_that_of_the_collector() -> None:
    async with (
        running(unhealthy_after="1m", is_up=False) as api,
        httpx.AsyncClient(base_url=f"http://{api.address}") as client,
    ):
        health = api.context.health
        assert (await client.get("/healthz")).json() == {"status": "Server not available"}
        health.available(api.context.clock.time_ns())
        health.report("receivers::csv", "restarts in 4 s: http://u:secret@h/ failed")
        answer = await client.get("/healthz")
        assert answer.status_code == 200
        assert answer.json()["status"] == "Server available"
        assert "secret" not in answer.text
        assert (await client.post("/healthz")).status_code == 405


async def test_the_description_is_valid_openapi_of_the_routes_that_are_there() -> None:
    async with running() as api, httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        with api.serve("exporters::a", ROUTES):
            document = (await client.get("/openapi.json")).json()
            page = (await client.get("/docs")).text
        validate(document, cls=OpenAPIV31SpecValidator)
        own = {"/docs", "/healthz", "/openapi.json"}
        assert (
            set(document["paths"]) == {"/api/hello", "/api/hello/{name}", "/api/stream", "/api/tasks", "/api/ws"} | own
        )
        assert document["paths"]["/api/tasks"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "Greets the world." in page
        assert "/hidden" not in page
        assert set((await client.get("/openapi.json")).json()["paths"]) == own


async def test_the_description_names_the_credentials() -> None:
    auth = {"authenticator": "keeper"}
    async with running(extensions={"keeper": Keeper()}, auth=auth) as api, httpx.AsyncClient() as client:
        document = (
            await client.get(f"http://{api.address}/openapi.json", headers={"authorization": "Bearer right"})
        ).json()
    validate(document, cls=OpenAPIV31SpecValidator)
    assert document["security"] == [{"bearer": []}]


async def test_all_of_it_is_served_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("localhost")
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    tls = {"cert_file": files.cert_file, "key_file": files.key_file}
    async with running(tls=tls) as api, httpx.AsyncClient(verify=trusting) as client:
        assert api.address
        place = f"localhost:{api.address.port}"
        with api.serve("exporters::a", ROUTES):
            assert (await client.get(f"https://{place}/api/hello")).json() == {"hello": "world"}
            async with client.stream("GET", f"https://{place}/api/stream") as answer:
                assert await anext(answer.aiter_bytes()) == b"data: first\n\n"
            async with connect(f"wss://{place}/api/ws", ssl=trusting) as socket:
                await socket.send("hi")
                assert await socket.recv() == "hi"


async def test_a_taken_port_is_one_sentence() -> None:
    async with running() as api:
        with pytest.raises(CannotStart, match="extensions::api::endpoint: cannot listen on "):
            await running(endpoint=str(api.address)).__aenter__()


async def test_requests_are_measured_by_route_and_status() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    async with running(meter=meter) as api, httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        with api.serve("exporters::a", ROUTES):
            for name in ("a", "b"):
                await client.get(f"/api/hello/{name}")
            await client.get("/nothing")
            await client.request("PROPFIND", "/api/hello")
            async with client.stream("GET", "/api/stream") as answer, connect(f"ws://{api.address}/api/ws"):
                await anext(answer.aiter_bytes())
                counts = counted(reader)
    assert counts == {
        ("GET", "/api/hello/{name}", 200): 2,
        ("GET", None, 404): 1,
        ("_OTHER", "/api/hello", 405): 1,
        ("GET", "/api/stream", 200): 1,
        ("GET", "/api/ws", 101): 1,
    }


def counted(reader: InMemoryMetricReader) -> dict[tuple[object, object, object], int]:
    """Requests by method, route and status."""
    data = reader.get_metrics_data()
    assert data
    metrics = metrics_in(data)
    (duration,) = [metric for metric in metrics if metric.name == "http.server.request.duration"]
    found: dict[tuple[object, object, object], int] = {}
    for point in duration.data.data_points:
        assert isinstance(point, HistogramDataPoint)
        of = point.attributes or {}
        key = (of["http.request.method"], of.get("http.route"), of["http.response.status_code"])
        found[key] = point.count
    return found
