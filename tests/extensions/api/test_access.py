"""Foreign pages, floods and clients without credentials are refused, with a sentence.

Each client has a bucket of its own, and the table of buckets has a bound.
"""

import logging
from typing import Any

import httpx
import pytest
import websockets
from websockets.asyncio.client import connect

from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock
from otel_zernel_extensions.api import ApiExtension
from otel_zernel_extensions.api.rates import Rates
from tests.extensions.api.serving import ROUTES, Keeper, running


async def ask(api: ApiExtension, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(base_url=f"http://{api.address}") as client:
        with api.serve("exporters::a", ROUTES):
            return await client.request(method, path, headers=fields)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9095", 200),
        ("LOCALHOST", 200),
        ("a.localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9095", 200),
        ("192.0.2.7", 200),
        ("gateway.example.com:80", 200),
        ("evil.com", 421),
        ("localhost.evil.com", 421),
        ("127.0.0.1.evil.com", 421),
        ("localhost@evil.com", 421),
        ("example.com", 421),
        ("[evil", 421),
        ("[::1]evil.com", 421),
        ("127.0.0.1:80,evil.com", 421),
        ("127.0.0.1:80@evil.com", 421),
    ],
)
async def test_a_name_that_is_not_the_servers_is_refused(host: str, status: int) -> None:
    async with running(allowed_hosts=["*.example.com"]) as api:
        answer = await ask(api, "/api/hello", host=host)
    assert answer.status_code == status
    if status == 421:
        assert "add the name to allowed_hosts" in answer.json()["error"]


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("", True),
        ("http://localhost:9095", True),
        ("https://LOCALHOST:9095", True),
        ("https://app.example.com", True),
        ("http://localhost:9096", False),
        ("http://localhost", False),
        ("https://evil.com", False),
        ("null", False),
        ("file://localhost:9095", False),
        ("http://localhost:9095.evil.com", False),
        ("http://[", False),
    ],
)
async def test_a_page_of_another_origin_changes_nothing(method: str, origin: str, is_allowed: bool) -> None:
    headers = {"host": "localhost:9095", **({"origin": origin} if origin else {})}
    async with running(cors={"allowed_origins": ["https://*.example.com"]}) as api:
        answer = await ask(api, "/api/notes", method, **headers)
    assert (answer.status_code == 403) == (not is_allowed)


async def test_a_page_of_another_origin_opens_no_websocket() -> None:
    async with running(cors={"allowed_origins": ["https://good.com"]}) as api:
        with api.serve("exporters::a", ROUTES):
            url = f"ws://{api.address}/api/ws"
            with pytest.raises(websockets.InvalidStatus, match="403"):
                await connect(url, origin=websockets.Origin("https://evil.com"))
            for origin in (None, "https://good.com", f"http://{api.address}"):
                async with connect(url, origin=websockets.Origin(origin) if origin else None):
                    pass


async def test_a_page_of_an_allowed_origin_may_read_and_others_may_not() -> None:
    async with running(cors={"allowed_origins": ["https://good.com"], "allowed_headers": ["authorization"]}) as api:
        good = await ask(api, "/api/hello", origin="https://good.com")
        bad = await ask(api, "/api/hello", origin="https://evil.com")
        wanted = {"access_control_request_method": "DELETE", "access_control_request_headers": "Authorization"}
        preflight = await ask(api, "/api/tasks", "OPTIONS", origin="https://good.com", **wanted)
    assert good.headers["access-control-allow-origin"] == "https://good.com"
    assert good.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "access-control-allow-origin" not in bad.headers
    assert bad.headers["cross-origin-resource-policy"] == "same-origin"
    assert preflight.status_code == 204
    assert "DELETE" in preflight.headers["access-control-allow-methods"]


async def test_every_answer_has_the_headers_of_security() -> None:
    async with running() as api:
        for path in ("/api/hello", "/nothing", "/docs"):
            headers = (await ask(api, path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"


async def test_an_address_has_its_rate_and_a_refusal_says_when_to_come_again() -> None:
    clock = FakeClock()
    async with running(clock=clock, rate_limit={"requests_per_second": 0.5, "burst": 3}) as api:
        assert [(await ask(api, "/api/hello")).status_code for _ in range(3)] == [200] * 3
        refused = await ask(api, "/api/hello")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        with api.serve("exporters::a", ROUTES), pytest.raises(websockets.InvalidStatus, match="429"):
            await connect(f"ws://{api.address}/api/ws")
        clock.advance(2)
        assert [(await ask(api, "/api/hello")).status_code for _ in range(2)] == [200, 429]


async def test_only_requests_with_credentials_are_answered() -> None:
    auth: dict[str, Any] = {"authenticator": "keeper", "request_params": ["authorization"]}
    async with running(extensions={"keeper": Keeper()}, auth=auth) as api:
        refused = await ask(api, "/api/hello")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json() == {"error": "no valid token"}
        assert (await ask(api, "/nothing")).status_code == 401
        assert (await ask(api, "/api/hello", host="any.name", authorization="Bearer right")).status_code == 200
        assert (await ask(api, "/api/hello?authorization=Bearer%20right")).status_code == 200
        assert (await ask(api, "/api/hello?authorization=Bearer%20right", authorization="wrong")).status_code == 401
        with api.serve("exporters::a", ROUTES):
            with pytest.raises(websockets.InvalidStatus, match="401"):
                await connect(f"ws://{api.address}/api/ws")
            async with connect(f"ws://{api.address}/api/ws", additional_headers={"authorization": "Bearer right"}):
                pass


async def test_a_route_that_starts_programs_needs_credentials_from_other_machines() -> None:
    async with running() as api:
        assert (await ask(api, "/api/tasks", "POST")).status_code == 200
        for header in ("x_forwarded_for", "x_forwarded_proto", "forwarded", "x_real_ip", "via"):
            refused = await ask(api, "/api/tasks", "POST", **{header: "192.0.2.1"})
            assert refused.status_code == 403
            assert "other machines may use this only with credentials" in refused.json()["error"]
    async with running(extensions={"keeper": Keeper()}, auth={"authenticator": "keeper"}) as api:
        fields = {"x_forwarded_for": "192.0.2.1", "authorization": "Bearer right"}
        assert (await ask(api, "/api/tasks", "POST", **fields)).status_code == 200


async def test_a_page_of_an_allowed_origin_starts_programs_only_with_credentials() -> None:
    cors = {"allowed_origins": ["*"]}
    async with running(cors=cors) as api:
        refused = await ask(api, "/api/tasks", "POST", origin="https://evil.com")
        assert refused.status_code == 403
        assert "only with credentials" in refused.json()["error"]
        own = await ask(api, "/api/tasks", "POST", origin=f"http://{api.address}", host=str(api.address))
        assert own.status_code == 200
    async with running(cors=cors, extensions={"keeper": Keeper()}, auth={"authenticator": "keeper"}) as api:
        fields = {"origin": "https://good.com", "authorization": "Bearer right"}
        assert (await ask(api, "/api/tasks", "POST", **fields)).status_code == 200


async def test_an_open_server_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with running():
            assert not caplog.messages
        async with running(endpoint="0.0.0.0:0"):
            (warning,) = caplog.messages
    assert "other machines can use 0.0.0.0:0 without TLS and authentication; set tls and auth" in warning


async def test_an_authenticator_that_is_not_enabled_is_one_sentence() -> None:
    with pytest.raises(CannotStart, match="extension keeper is not enabled"):
        await running(auth={"authenticator": "keeper"}).__aenter__()


def test_a_rested_address_may_burst_and_then_keeps_its_rate() -> None:
    clock = FakeClock()
    rates = Rates(10, 5, clock.monotonic)
    assert [rates.wait("192.0.2.1") for _ in range(7)] == [0] * 5 + [1] * 2
    allowed = 0
    for _ in range(1000):
        clock.advance(0.01)
        allowed += rates.wait("192.0.2.1") == 0
    assert 99 <= allowed <= 101
    clock.advance(3600)
    assert [rates.wait("192.0.2.1") for _ in range(6)] == [0] * 5 + [1]


def test_addresses_do_not_share_but_an_ipv6_network_does() -> None:
    rates = Rates(1, 1, FakeClock().monotonic)
    first = [rates.wait(one) for one in ("192.0.2.1", "192.0.2.2", "2001:db8::1", "fe80::1%eth0", "")]
    second = [rates.wait(one) for one in ("::ffff:192.0.2.1", "2001:db8::2", "2001:db8:0:1::1", "fe80::2%eth1")]
    assert first == [0, 0, 0, 0, 0]
    assert second == [1, 1, 0, 1]


def test_a_flood_of_addresses_takes_bounded_memory() -> None:
    rates = Rates(1, 1, FakeClock().monotonic)
    for number in range(20_000):
        rates.wait(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(rates._buckets) == 10_000
    assert rates.wait("10.0.78.31") == 1
    assert rates.wait("10.0.0.0") == 0
