"""Web pages of the configured origins may send telemetry, and no others."""

import httpx
import pytest

from tests.receivers.otlp.serving import Recording, gauge, receiving

PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type, x-team"}
CORS = {"allowed_origins": ["https://*.example.com"], "allowed_headers": ["X-Team"], "max_age": 600}


async def ask(method: str, headers: dict[str, str], cors: object) -> httpx.Response:
    protocols = {"http": {"endpoint": "localhost:0", "cors": cors}}
    async with receiving(Recording(), protocols) as receiver, httpx.AsyncClient() as client:
        url = f"http://{receiver.addresses['http']}/v1/metrics"
        return await client.request(method, url, headers=headers, content=gauge().SerializeToString())


async def test_a_page_of_an_allowed_origin_may_send() -> None:
    origin = {"origin": "https://app.example.com"}
    answer = await ask("OPTIONS", {**PREFLIGHT, **origin}, CORS)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    assert answer.headers["access-control-allow-headers"] == "content-type, x-team"
    assert answer.headers["access-control-max-age"] == "600"
    answer = await ask("POST", {"content-type": "application/x-protobuf", **origin}, {**CORS, "exposed_headers": ["x"]})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example.com")
    assert answer.headers["access-control-expose-headers"] == "x"


@pytest.mark.parametrize(
    "headers",
    [
        {**PREFLIGHT, "origin": "https://example.org"},
        {**PREFLIGHT, "origin": "https://app.example.com.evil.org"},
        {**PREFLIGHT, "origin": "https://app.example.com", "access-control-request-headers": "x-other"},
        {**PREFLIGHT, "origin": "https://app.example.com", "access-control-request-method": "DELETE"},
    ],
)
async def test_a_page_of_another_origin_or_with_other_headers_may_not(headers: dict[str, str]) -> None:
    answer = await ask("OPTIONS", headers, CORS)
    assert "access-control-allow-origin" not in answer.headers


async def test_without_origins_there_is_no_cors() -> None:
    answer = await ask("OPTIONS", {**PREFLIGHT, "origin": "https://app.example.com"}, None)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]
