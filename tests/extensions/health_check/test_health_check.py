"""The responses of the health check over HTTP."""

import os
import ssl
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from otel_zernel.batch import ItemCount
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel.health import Outage, go_duration
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_extensions.health_check import HealthCheckExtension
from tests.exporters.otlp.certificates import Authority


def health_check(context: Context, **settings: object) -> HealthCheckExtension:
    config = HealthCheckExtension.Config.model_validate({"endpoint": "127.0.0.1:0", **settings})
    return HealthCheckExtension(config, context)


async def request(extension: HealthCheckExtension, path: str = "/", method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.request(method, f"http://{extension.address}{path}")


@pytest.fixture
def context() -> Context:
    return make_context("extensions", "health_check")


async def test_a_running_collector_is_available_since_its_start(context: Context) -> None:
    context.health.up_since = context.clock.time_ns() / 1e9 - 62.5
    async with health_check(context) as extension:
        answer = await request(extension)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "status": "Server available",
        "upSince": "2023-11-14T22:12:17.500000Z",
        "uptime": "1m2.5s",
    }


async def test_a_collector_that_starts_or_stops_is_not_available(context: Context) -> None:
    async with health_check(context) as extension:
        before = await request(extension)
        context.health.available(context.clock.time_ns())
        running = await request(extension)
        context.health.unavailable()
        after = await request(extension)
    assert [before.status_code, running.status_code, after.status_code] == [503, 200, 503]
    assert before.json() == {"status": "Server not available"}


async def test_an_exporter_that_delivers_nothing_is_named_and_makes_the_collector_unhealthy_by_choice(
    context: Context,
) -> None:
    clock = FakeClock()
    context = replace(context, clock=clock)
    context.health.available(clock.time_ns())
    context.health.outages["exporters::otlp"] = Outage(0.0, 0.0, "Connection refused", lambda: ItemCount(1204))
    answers = []
    for unhealthy_after in ("0s", "3m"):
        async with health_check(context, unhealthy_after=unhealthy_after) as extension:
            clock.advance(100.0)
            answers += [await request(extension)]
    clock.advance(5.0)
    assert [answer.status_code for answer in answers] == [200, 503]
    assert [answer.json()["status"] for answer in answers] == ["Server available", "Server not available"]
    assert answers[1].json()["components"] == {
        "exporters::otlp": "has delivered nothing for 3 m 20 s: Connection refused; 1,204 metric points are waiting"
    }


async def test_a_component_with_a_problem_is_named_and_the_collector_stays_available(context: Context) -> None:
    context.health.available(context.clock.time_ns())
    context.health.report("receivers::csv", "restarts in 4s")
    async with health_check(context) as extension:
        with_problem = await request(extension)
        context.health.report("receivers::csv", None)
        recovered = await request(extension)
    assert with_problem.status_code == 200
    assert with_problem.json()["components"] == {"receivers::csv": "restarts in 4s"}
    assert "components" not in recovered.json()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/health?verbose=1", 200), ("HEAD", "/health", 200), ("POST", "/health", 405), ("GET", "/", 404)],
)
async def test_only_get_and_head_of_the_path_are_answered(
    context: Context, method: str, path: str, status: int
) -> None:
    context.health.available(context.clock.time_ns())
    async with health_check(context, path="/health") as extension:
        assert (await request(extension, path, method)).status_code == status


async def test_a_port_in_use_is_one_message_that_names_the_setting(context: Context) -> None:
    async with health_check(context) as first:
        second = health_check(context, endpoint=str(first.address))
        with pytest.raises(CannotStart, match=r"extensions::health_check::endpoint: cannot listen on 127\.0\.0\.1:"):
            await second.__aenter__()


async def test_leaving_without_entering_is_safe(context: Context) -> None:
    await health_check(context).__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (2.5, "2.5s"), (60, "1m0s"), (3600, "1h0m0s"), (90061.004, "25h1m1.004s"), (-3, "0s")],
)
def test_uptime_has_the_notation_of_go(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


async def test_a_problem_with_a_path_that_is_no_utf8_is_shown(context: Context) -> None:
    """Fault 15: the answer was 500."""
    context.health.available(context.clock.time_ns())
    context.health.report("receivers::csv", f"cannot read {os.fsdecode(bytes([0xFF, 0xFE]))}.csv")
    async with health_check(context) as extension:
        answer = await request(extension)
    assert (answer.status_code, answer.json()["components"]["receivers::csv"]) == (
        200,
        "cannot read \\xff\\xfe.csv",
    )


async def test_a_token_can_be_required() -> None:
    token = BearerTokenAuthExtension.Config.model_validate({"token": "s3cret"})
    auth = BearerTokenAuthExtension(token, make_context("extensions", "bearertokenauth"))
    context = make_context("extensions", "health_check", extensions={"bearertokenauth": auth})
    async with health_check(context, auth={"authenticator": "bearertokenauth"}) as extension:
        assert (await request(extension)).status_code == 401
        async with httpx.AsyncClient(headers={"authorization": "Bearer s3cret"}) as client:
            assert (await client.get(f"http://{extension.address}/")).status_code == 503


async def test_it_can_be_served_with_tls(tmp_path: Path, context: Context) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("localhost")
    trust = ssl.create_default_context(cafile=authority.ca_file)
    tls = {"cert_file": files.cert_file, "key_file": files.key_file}
    async with health_check(context, tls=tls) as extension, httpx.AsyncClient(verify=trust) as client:
        assert extension.address
        assert (await client.get(f"https://localhost:{extension.address.port}/")).status_code == 503
