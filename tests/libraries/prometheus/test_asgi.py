"""The ASGI application of a page."""

import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from otel_zernel_libraries.prometheus import Format, metrics_app


def render(format_: Format) -> bytes:
    assert threading.current_thread() is not threading.main_thread()
    return b"# EOF\n" if format_.openmetrics else b"a 1\n" * 1000


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=metrics_app(render))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers={"accept-encoding": ""}
    ) as client:
        yield client


async def test_the_content_type_names_the_format(client: httpx.AsyncClient) -> None:
    text = await client.get("/metrics")
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert text.content == b"a 1\n" * 1000
    modern = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert modern.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert modern.content == b"# EOF\n"


async def test_a_large_page_is_compressed_if_the_client_accepts_gzip(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics", headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert int(response.headers["content-length"]) < 200
    assert response.content == b"a 1\n" * 1000
    small = await client.get("/metrics", headers={"accept-encoding": "gzip", "accept": "application/openmetrics-text"})
    assert "content-encoding" not in small.headers


async def test_head_has_the_length_and_no_body(client: httpx.AsyncClient) -> None:
    response = await client.head("/metrics")
    assert (response.status_code, response.headers["content-length"], response.content) == (200, "4000", b"")


async def test_health_answers_ok_and_other_requests_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).text == "ok"
    assert (await client.get("/nothing")).status_code == 404
    refused = await client.post("/metrics")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
