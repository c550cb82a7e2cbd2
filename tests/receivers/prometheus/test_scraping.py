"""Scrapes over HTTP: schedules, credentials, hostile targets, and what a user reads."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, Dropped, FakeClock, ImpatientClock, make_context, until
from otel_zernel_receivers.prometheus.scraping.target_scraper import ScrapeSchedule
from tests.background import in_background
from tests.exporters.otlp.certificates import Authority
from tests.receivers.prometheus.parts import receiver_of
from tests.receivers.prometheus.serving import OPENMETRICS, PageServer, Write, ended, metrics_of, series_of, serving

PAGE = b"# TYPE a gauge\na 1\n"


@asynccontextmanager
async def scraped(*targets: str, **settings: Any) -> AsyncIterator[tuple[Downstream, Context]]:
    """A running receiver, which scrapes every 50 ms: its batches and its context."""
    context = make_context("receivers", "prometheus", clock=ImpatientClock())
    downstream = Downstream()
    async with in_background(receiver_of(*targets, context=context, **settings).run(downstream)):
        yield downstream, context


def ups(downstream: Downstream) -> list[float]:
    """The values of `up`, in order."""
    return [value for batch in downstream.batches for (name, _), value in series_of(batch).items() if name == "up"]


async def failure(target: PageServer, caplog: pytest.LogCaptureFixture, **settings: Any) -> str:
    """The warning about the first scrape, which must fail."""
    with caplog.at_level(logging.INFO):
        async with scraped(target.address, **settings) as (downstream, context):
            await until(lambda: downstream.batches)
            assert ups(downstream)[0] == 0
            problem = context.health.problems[context.path]
    assert problem in caplog.text
    return problem


async def test_a_page_comes_out_with_its_report() -> None:
    async with serving(PAGE) as server, scraped(server.address) as (downstream, context):
        await until(lambda: len(downstream.batches) > 1)
        found = {name: value for (name, _), value in series_of(downstream.batches[0]).items()}
        assert (found["a"], found["up"], found["scrape_samples_scraped"]) == (1, 1, 1)
        assert found["scrape_series_added"] == 1
        assert 0 < found["scrape_duration_seconds"] < 60
        about = {p.key: p.value for p in downstream.batches[0].metrics.resource_metrics[0].resource.attributes}
        assert about["service.instance.id"].string_value == server.address
        assert (about["server.address"].string_value, about["server.port"].int_value) == ("127.0.0.1", server.port)
        assert context.health.problems == {}
        assert {name: value for (name, _), value in series_of(downstream.batches[1]).items()}[
            "scrape_series_added"
        ] == 0


async def test_a_request_asks_for_the_formats_and_has_parameters() -> None:
    job = {"params": {"module": ["x y"]}, "metrics_path": "/probe", "scrape_native_histograms": True}
    async with serving(PAGE) as server, scraped(server.address, **job):
        await until(lambda: server.requests)
        path, headers = server.requests[0]
    assert path == "/probe?module=x+y"
    assert headers["accept"].startswith("application/vnd.google.protobuf")
    assert "openmetrics-text;version=1.0.0" in headers["accept"]
    assert headers["accept-encoding"] == "gzip"
    assert headers["x-prometheus-scrape-timeout-seconds"] == "0.25"


@pytest.mark.parametrize(
    ("server", "job", "expected"),
    [
        ({"status": "404 Not Found"}, {}, "404 Not Found; check metrics_path"),
        ({"status": "401 Unauthorized"}, {}, "set authorization or basic_auth"),
        ({"content_type": "text/html", "body": b"<html>"}, {}, "web page (text/html)"),
        ({"content_type": "text/odd", "body": b"<html>"}, {}, "not a metrics page: line 1"),
        ({"content_type": OPENMETRICS, "body": b"a 1\n"}, {}, "# EOF"),
        ({"headers": {"Content-Encoding": "gzip"}, "body": b"no gzip"}, {}, "damaged gzip"),
        ({"headers": {"Content-Encoding": "gzip"}, "body": gzip.compress(PAGE)[:-9]}, {}, "cut off"),
        ({"headers": {"Content-Encoding": "br"}, "body": PAGE}, {}, "compressed with br"),
        ({"body": b"a 1\nb 1\n"}, {"sample_limit": 1}, "more samples than sample_limit: 1"),
        ({"body": b"a" * 2000}, {"body_size_limit": "1KB"}, "larger than body_size_limit: 1,024 bytes"),
        ({"status": "302 Found", "headers": {"Location": "/metrics"}}, {}, "more than 10 redirects"),
        ({"status": "302 Found", "headers": {"Location": "/"}}, {"follow_redirects": False}, "302 Found"),
        ({"status": "302 Found", "headers": {"Location": "file:///etc/passwd"}}, {}, "no HTTP answer"),
        ({"delay": 60}, {"scrape_interval": "300ms", "scrape_timeout": "200ms"}, "no complete answer within 0.2 s"),
    ],
)
async def test_a_bad_answer_fails_the_scrape_with_one_sentence(
    server: dict[str, Any], job: dict[str, Any], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = {"scrape_interval": "500ms", **job}
    async with serving(**{"body": PAGE, **server}) as target:
        problem = await failure(target, caplog, **job)
    assert problem.startswith(f"Cannot scrape http://{target.address}/metrics (job test): ")
    assert expected in problem
    assert "\n" not in problem


async def endless(write: Write) -> None:
    while True:
        await write(b"a_long_name_of_a_metric 1\n" * 4096)


async def drops(write: Write) -> None:
    """A byte now and then."""
    while True:
        await write(b"#")
        await asyncio.sleep(0.01)


async def bomb(write: Write) -> None:
    """1 GiB in 1 MiB."""
    packed = gzip.compress(b"\n" * (1 << 24), 9)
    for _ in range(64):
        await write(packed)


@pytest.mark.parametrize(
    ("stream", "encoding", "expected"),
    [
        (endless, "", "larger than body_size_limit"),
        (drops, "", "no complete answer"),
        (bomb, "gzip", "larger than body_size_limit"),
    ],
)
async def test_a_hostile_target_costs_neither_memory_nor_time(
    stream: Callable[[Write], Any], encoding: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(stream=stream, headers={"Content-Encoding": encoding}) as target:
        job = {"scrape_interval": "2s", "scrape_timeout": "1s", "body_size_limit": "4MiB"}
        assert expected in await failure(target, caplog, **job)


async def test_a_target_that_hangs_delays_no_other() -> None:
    job = {"scrape_interval": "100ms", "scrape_timeout": "100ms"}
    async with (
        serving(PAGE, delay=60) as slow,
        serving(PAGE) as quick,
        scraped(slow.address, quick.address, **job) as (downstream, _),
    ):
        await until(lambda: ups(downstream).count(1) >= 5)
        assert ups(downstream).count(0) >= 1


async def test_series_end_when_a_target_fails_and_return_when_it_recovers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(PAGE) as server, scraped(server.address) as (downstream, context):
            await until(lambda: 1 in ups(downstream))
            server.status = "500 Broken"
            await until(lambda: 0 in ups(downstream))
            failed = next(batch for batch in downstream.batches if 0 in series_of(batch).values())
            assert "a" in ended(failed)
            server.status = "200 OK"
            await until(lambda: ups(downstream)[-1] == 1)
            assert context.health.problems == {}
    said = [record.getMessage() for record in caplog.records if "Cannot scrape" in record.getMessage()]
    assert [one.partition(" ")[0] for one in said] == ["Cannot", "Solved:"]


async def test_a_malformed_line_costs_itself_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(b"a 1\nb{ 2\nc 3\n") as server, scraped(server.address) as (downstream, context):
        await until(lambda: len(downstream.batches) > 1)
        assert {"a", "c"} <= metrics_of(downstream.batches[1]).keys()
        assert isinstance(context.drop, Dropped)
        assert context.drop.counts["malformed sample"] >= 2
    assert 'the first is line 2: "b{ 2"' in caplog.text
    assert caplog.text.count("malformed") == 1


async def test_an_unknown_content_type_is_read_as_text_or_as_the_fallback_says() -> None:
    async with serving(PAGE, content_type="text/odd") as server, scraped(server.address) as (downstream, _):
        await until(lambda: 1 in ups(downstream))
    job = {"fallback_scrape_protocol": "OpenMetricsText1.0.0"}
    async with serving(PAGE, content_type="") as server, scraped(server.address, **job) as (downstream, _):
        await until(lambda: 0 in ups(downstream))


async def test_a_compressed_page_is_read() -> None:
    headers = {"Content-Encoding": "gzip"}
    async with serving(gzip.compress(PAGE), headers=headers) as server, scraped(server.address) as (downstream, _):
        await until(lambda: 1 in ups(downstream))
        assert "a" in metrics_of(downstream.batches[0])


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"basic_auth": {"username": "u", "password": "p:ü"}}, "Basic dTpwOsO8"),
        ({"basic_auth": {"username": "u", "password_file": "FILE"}}, "Basic dTpzZWNyZXQ="),
        ({"authorization": {"credentials": "token"}}, "Bearer token"),
        ({"authorization": {"type": "Token", "credentials_file": "FILE"}}, "Token secret"),
        ({"bearer_token_file": "FILE"}, "Bearer secret"),
        ({"http_headers": {"Authorization": {"values": ["own"]}}}, "own"),
    ],
)
async def test_credentials_are_sent_and_never_to_another_host(
    job: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    text = str(job).replace("FILE", str(secret))
    async with serving(PAGE) as other, serving(PAGE) as server:
        server.status, server.headers = "307 Moved", {"Location": f"http://{other.address}/there"}
        async with scraped(server.address, **eval(text)):
            await until(lambda: other.requests)
        assert server.requests[0][1]["authorization"] == expected
        assert other.requests[0][0] == "/there"
        assert "authorization" not in other.requests[0][1]


async def test_credentials_that_cannot_be_read_are_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(PAGE) as server:
        problem = await failure(server, caplog, bearer_token_file="/no/such/file")
    assert "cannot read the credentials in /no/such/file: No such file or directory" in problem


async def test_nobody_listens(caplog: pytest.LogCaptureFixture, unused_tcp_port: int) -> None:
    problem = await failure(PageServer(port=unused_tcp_port), caplog)
    assert problem.endswith("no connection: Connection refused")


async def test_tls_is_verified_and_its_problems_have_advice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    context = authority.issue("localhost").server_context()
    job: dict[str, Any] = {"scheme": "https", "scrape_interval": "1s"}
    async with serving(PAGE, tls=context) as server:
        async with scraped(server.address, **job, tls_config={"ca_file": authority.ca_file}) as (downstream, _):
            await until(lambda: 1 in ups(downstream))
        async with scraped(server.address, **job, tls_config={"insecure_skip_verify": True}) as (downstream, _):
            await until(lambda: 1 in ups(downstream))
        assert "the certificate is not trusted" in await failure(server, caplog, **job)
        assert "set scheme: https" in await failure(server, caplog, scrape_interval="1s")
    async with serving(PAGE) as plain:
        assert "set scheme: http" in await failure(plain, caplog, **job)


async def test_a_full_queue_costs_scrapes_which_are_counted() -> None:
    async with serving(PAGE) as server:
        context = make_context("receivers", "prometheus", clock=SystemClock())
        downstream = Downstream(refuse=1_000_000)
        assert isinstance(context.drop, Dropped)
        counts = context.drop.counts
        async with in_background(receiver_of(server.address, context=context).run(downstream)):
            await until(lambda: counts["refused"])
            downstream.refuse = 0
            await until(lambda: downstream.batches)


@pytest.mark.parametrize("offset", [0.0, 0.25, 0.999])
def test_a_target_has_a_fixed_place_in_each_interval_of_the_wall_clock(offset: float) -> None:
    clock = FakeClock(1_700_000_003_700_000_000)
    schedule = ScrapeSchedule(clock, 10.0, offset)
    times = []
    for _ in range(4):
        clock.advance(schedule.wait + 0.004)  # the event loop is late
        times.append(schedule.begin())
    assert [time % 10_000_000_000 for time in times] == [round(offset * 10_000_000_000)] * 4
    assert [after - before for before, after in pairwise(times)] == [10_000_000_000] * 3


def test_a_scrape_that_takes_too_long_leaves_out_the_next_ones() -> None:
    clock = FakeClock(1_700_000_000_000_000_000)
    schedule = ScrapeSchedule(clock, 10.0, 0.5)
    clock.advance(schedule.wait)
    first = schedule.begin()
    clock.advance(33)
    second = schedule.begin()
    assert second - first == 33_000_000_000
    clock.advance(schedule.wait)
    assert schedule.begin() - first == 40_000_000_000
