"""The receiver reads any server of the feed, connects again at the agreed times, and ends the series of a lost feed."""

import asyncio
import shutil
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from websockets.asyncio.server import ServerConnection

from otel_zernel.errors import CannotStart
from otel_zernel.testing import Downstream, Dropped, FakeClock, make_context, until
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_receivers.zernel import ZernelReceiver
from otel_zernel_receivers.zernel.config import ZernelConfig
from tests.exporters.otlp.certificates import Authority
from tests.exporters.websocket.feeds import explicit, feeding, memory
from tests.receivers.zernel.feeds import WHOLE, ForeignFeed, receiving, rows_of, serving


class NotingClock(FakeClock):
    """Notes how long is slept. `stop_after` sleeps, the last one takes for ever."""

    def __init__(self, stop_after: int) -> None:
        super().__init__()
        self.sleeps: list[float] = []
        self._stop_after = stop_after

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if len(self.sleeps) >= self._stop_after:
            await asyncio.Event().wait()
        await super().sleep(seconds)


async def test_a_foreign_feed_comes_out_as_metrics() -> None:
    async with serving(ForeignFeed(WHOLE)) as url, receiving(url) as (received, _):
        await until(lambda: received.batches)
    assert len(rows_of(received.batches[0])) == 6
    (resource,) = received.batches[0].metrics.resource_metrics
    named = {pair.key: pair.value for pair in resource.resource.attributes}
    assert named["server.address"].string_value == "127.0.0.1"
    assert named["host.name"].string_value


async def test_the_waits_double_up_to_the_longest(unused_tcp_port: int) -> None:
    clock = NotingClock(8)
    config: dict[str, Any] = {"initial_interval": "1s", "max_interval": "30s"}
    async with receiving(f"ws://127.0.0.1:{unused_tcp_port}", clock=clock, **config):
        await until(lambda: len(clock.sleeps) == 8)
    assert clock.sleeps == [1, 2, 4, 8, 16, 30, 30, 30]


async def test_a_good_message_sets_the_wait_back_and_a_bad_one_does_not() -> None:
    feed = ForeignFeed("not JSON", closes=True)
    clock = NotingClock(5)

    def next_message() -> None:
        feed.messages = ({},) if len(clock.sleeps) == 3 else ("not JSON",)

    class Changing(ForeignFeed):
        async def __call__(self, connection: ServerConnection) -> None:
            next_message()
            feed.clients += 1
            await feed(connection)

    config: dict[str, Any] = {"initial_interval": "1s", "max_interval": "30s"}
    async with serving(Changing()) as url, receiving(url, clock=clock, **config) as (_, context):
        await until(lambda: len(clock.sleeps) == 5)
    assert clock.sleeps == [1, 2, 4, 1, 2]
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"unreadable_message": 4}


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
async def test_a_lost_feed_ends_its_series_and_is_reported_until_it_is_back(is_killed: bool) -> None:
    feed = ForeignFeed(WHOLE)
    async with serving(feed) as url, receiving(url) as (received, context):
        await until(lambda: received.batches)
        feed.closes, feed.messages = True, ()
        for connection in list(feed.open):
            connection.transport.abort() if is_killed else await connection.close()
        await until(lambda: len(received.batches) > 1)
        assert all(value is None for _, _, value in rows_of(received.batches[1]))
        assert len(rows_of(received.batches[1])) == 6
        await until(lambda: "server closed" in str(context.health.sentences(0)))
        feed.closes, feed.messages = False, (WHOLE,)
        await until(lambda: len(received.batches) > 2)
        await until(lambda: not context.health.sentences(0))


async def test_what_cannot_be_read_is_counted_and_the_connection_goes_on() -> None:
    script = ("{", b"\0", {"gpu_utilization": 7, "cuda_latency_p50_us": "x"}, "[" * 1000, WHOLE)
    feed = ForeignFeed(*script)
    async with serving(feed) as url, receiving(url) as (received, context):
        await until(lambda: received.batches)
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"unreadable_message": 3, "unreadable_field": 2}
    assert feed.clients == 1


async def test_a_message_that_is_too_long_ends_the_connection_with_advice() -> None:
    async with serving(ForeignFeed("x" * 5000)) as url, receiving(url, max_message_size=4096) as (_, context):
        await until(lambda: "longer than 4096 bytes; raise max_message_size" in str(context.health.sentences(0)))


async def test_a_long_message_is_read() -> None:
    items = [{"key": f"{pid}:0", "current_bytes": pid} for pid in range(4000)]
    async with serving(ForeignFeed({"gpu_utilization": items})) as url, receiving(url) as (received, _):
        await until(lambda: received.batches)
    assert received.point_count == 8000


async def test_refused_batches_are_counted_and_newer_ones_follow() -> None:
    downstream = Downstream(refuse=1)
    async with serving(ForeignFeed(WHOLE, WHOLE)) as url, receiving(url, downstream=downstream) as (received, context):
        await until(lambda: received.batches)
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"refused": 6}


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (HTTPStatus.UNAUTHORIZED, "requires credentials"),
        (HTTPStatus.FORBIDDEN, "refuses this client"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "no room"),
        (HTTPStatus.IM_A_TEAPOT, "answered with status 418"),
        (HTTPStatus.FOUND, "answered with status 302"),
    ],
)
async def test_a_refusal_is_explained(status: HTTPStatus, sentence: str) -> None:
    def refuse(connection: ServerConnection, _: Any) -> Any:
        answer = connection.respond(status, "no\n")
        answer.headers["Location"] = "ws://127.0.0.1:1/"
        return answer

    async with serving(ForeignFeed(), process_request=refuse) as url, receiving(url) as (_, context):
        await until(lambda: sentence in str(context.health.sentences(0)))


async def test_a_server_that_speaks_something_else_is_named(unused_tcp_port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", unused_tcp_port)
    async with server, receiving(f"ws://127.0.0.1:{unused_tcp_port}") as (_, context):
        await until(lambda: "not a WebSocket" in str(context.health.sentences(0)))


async def test_our_own_feed_arrives() -> None:
    async with feeding() as exporter:
        await exporter.export(memory(5))
        await exporter.export(explicit("zernel.dataloader.wait", {0.25: 9}))
        async with receiving(f"ws://{exporter.address}/feed") as (received, _):
            await until(lambda: received.batches)
    values = {name: value for name, _, value in rows_of(received.batches[0])}
    assert values["zernel.cuda.memory.used"] == 5
    assert values["zernel.dataloader.wait.percentiles"][0.5] == pytest.approx(0.25, rel=0.01)


async def test_a_feed_with_tls_and_a_token_arrives(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("localhost")
    token = BearerTokenAuthExtension.Config.model_validate({"token": "secret-7"})
    auth = {"bearertokenauth": BearerTokenAuthExtension(token, make_context("extensions", "bearertokenauth"))}
    secured: dict[str, Any] = {
        "tls": {"cert_file": files.cert_file, "key_file": files.key_file},
        "auth": {"authenticator": "bearertokenauth"},
    }
    async with auth["bearertokenauth"], feeding(extensions=auth, **secured) as exporter:
        await exporter.export(memory(5))
        url, tls = f"wss://localhost:{exporter.address.port}", {"ca_file": str(authority.ca_file)}
        async with receiving(url, extensions=auth, tls=tls, auth=secured["auth"]) as (received, _):
            await until(lambda: received.batches)
        async with receiving(url, tls=tls) as (_, context):
            await until(lambda: "requires credentials" in str(context.health.sentences(0)))
        async with receiving(url, auth=secured["auth"], extensions=auth) as (_, context):
            await until(lambda: "TLS failed" in str(context.health.sentences(0)))


async def test_certificates_are_read_again_and_unusable_ones_end_nothing(tmp_path: Path, unused_tcp_port: int) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new, trusted = Authority(tmp_path / "old"), Authority(tmp_path / "new"), tmp_path / "trusted.pem"
    shutil.copyfile(old.ca_file, trusted)
    tls = {"ca_file": str(trusted), "reload_interval": "1ms"}
    feed, url = ForeignFeed(WHOLE, closes=True), f"wss://localhost:{unused_tcp_port}"
    async with receiving(url, tls=tls) as (received, context):
        async with serving(feed, unused_tcp_port, ssl=old.issue("localhost").server_context()):
            await until(lambda: received.batches)
            trusted.write_text("not a certificate")
            seen = feed.clients
            await until(lambda: feed.clients > seen + 3)
        async with serving(feed, unused_tcp_port, ssl=new.issue("localhost").server_context()):
            await until(lambda: "TLS failed" in str(context.health.sentences(0)))
            shutil.copyfile(new.ca_file, trusted)
            seen = feed.clients
            await until(lambda: feed.clients > seen)


async def test_unusable_certificates_stop_the_start(tmp_path: Path) -> None:
    fields = {"endpoint": "wss://localhost:1", "tls": {"ca_file": str(tmp_path / "no.pem")}}
    config = ZernelConfig.model_validate(fields)
    with pytest.raises(CannotStart, match="receivers::zernel::tls::ca_file: cannot read"):
        await ZernelReceiver(config, make_context("receivers", "zernel")).run(Downstream())


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"endpoint": "localhost:9092"}, "write ws://host:9092"),
        ({"endpoint": "http://localhost:9092"}, "write ws://host:9092"),
        ({"endpoint": "ws://"}, "write ws://host:9092"),
        ({"endpoint": "ws://u:secret@host:9092"}, "must not have a user"),
        ({"initial_interval": "1m"}, "max_interval must not be shorter"),
    ],
)
def test_a_wrong_configuration_has_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence) as refused:
        ZernelConfig.model_validate(fields)
    assert "secret" not in str(refused.value.errors(include_input=False))
