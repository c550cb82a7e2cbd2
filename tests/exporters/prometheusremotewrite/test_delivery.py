"""Samples arrive once and in order: over old servers, bad samples, outages and requests of limited size.

A durable queue is the write-ahead log: after kill -9 and an outage, every sample arrives, and in order.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from starlette.responses import Response

from otel_zernel.batch import Batch
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.testing import until
from tests.collectors import collector
from tests.exporters.otlp.collectors import send
from tests.exporters.prometheusremotewrite.decoding import name_of
from tests.exporters.prometheusremotewrite.exporting import V1, exporter
from tests.exporters.prometheusremotewrite.receiver import WriteReceiver
from tests.otlp import NOW, SECOND, data, exponential, gauge, histogram, number

NOW_MS = NOW // 1_000_000


def batch(series: int = 10, second: int = 0, samples: int = 1) -> Batch:
    """A gauge with so many series, and so many samples of each."""
    points = [
        number(float(at), {"gpu": str(index)}, time=NOW + at * SECOND)
        for at in range(second, second + samples)
        for index in range(series)
    ]
    return Batch(data(gauge("g", *points)))


def stored(receiver: WriteReceiver) -> dict[str, list[float]]:
    """The values in the receiver, by GPU."""
    return {dict(labels)["gpu"]: [value for _, value in found] for labels, found in receiver.named("g").items()}


@pytest.mark.parametrize("kind", ["old", "strict", "unsupported"])
async def test_a_server_without_2_0_gets_the_same_samples_by_1_0(kind: Literal["old", "strict", "unsupported"]) -> None:
    receiver = WriteReceiver(kind=kind)
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(batch())
        await one.export(batch(second=1))
    assert receiver.versions == [2, 1, 1]
    assert set(map(tuple, stored(receiver).values())) == {(0.0, 1.0)}
    assert dropped.counts == {}


async def test_native_histograms_become_classic_ones_for_a_server_that_takes_none() -> None:
    receiver = WriteReceiver(native=False)
    message = data(exponential("e", 1, (0, [1, 2]), sum_=4.0), gauge("g", number(1.0)))
    later = data(exponential("e", 1, (0, [1, 3]), sum_=5.0, time=NOW + SECOND))
    async with receiver.serve() as url, exporter(url, **V1) as (one, dropped):
        await one.export(Batch(message))
        await one.export(Batch(later))
    assert len(receiver.requests) == 3
    [counts] = receiver.named("e_seconds_count").values()
    assert [value for _, value in counts] == [3, 4]
    assert len(receiver.named("e_seconds_bucket")) > 10
    assert len(receiver.named("g")) == 1
    assert dropped.counts == {}


@pytest.mark.parametrize("config", [{}, V1], ids=["2.0", "1.0"])
async def test_one_bad_sample_costs_one_sample(config: dict[str, str]) -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url, **config) as (one, dropped):
        await one.export(batch(1, second=5))
        await one.export(batch(1000, second=3))
    assert dropped.counts == {"out_of_order": 1}
    assert len(stored(receiver)) == 1000
    assert stored(receiver)["0"] == [5.0]
    assert all(values == [3.0] for gpu, values in stored(receiver).items() if gpu != "0")


async def test_a_bad_sample_is_found_in_a_few_requests_even_after_a_restart() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url:
        async with exporter(url, **V1) as (one, _):
            await one.export(batch(1, second=5))
        async with exporter(url, **V1) as (one, dropped):
            await one.export(batch(1000, second=3))
    assert dropped.counts == {"out_of_order": 1}
    assert len(stored(receiver)) == 1000
    assert len(receiver.requests) < 25


async def test_a_batch_that_is_sent_again_after_a_crash_is_completed() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url:
        async with exporter(url, **V1) as (one, _):
            await one.export(batch(200, samples=3))
        async with exporter(url, **V1) as (one, dropped):
            await one.export(batch(200, samples=6))
    assert all(values == [0, 1, 2, 3, 4, 5] for values in stored(receiver).values())
    assert len(stored(receiver)) == 200
    assert set(dropped.counts) <= {"out_of_order", "duplicate"}
    assert len(receiver.requests) < 300


async def test_a_server_that_rejects_everything_is_not_asked_for_each_sample() -> None:
    receiver = WriteReceiver()
    receiver.answers.extend(Response("no", 400) for _ in range(1000))
    async with receiver.serve() as url, exporter(url, **V1) as (one, dropped):
        await one.export(batch(5000))
    assert dropped.counts == {"rejected": 5000}
    assert len(receiver.requests) < 300


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_failed_batch_is_sent_again(status: int) -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("busy", status, {"Retry-After": "7"}))
    first = batch()
    async with receiver.serve() as url, exporter(url) as (one, _):
        with pytest.raises(Retryable, match="busy") as failed:
            await one.export(first)
        assert failed.value.after == 7
        await one.export(first)
    assert len(stored(receiver)) == 10


async def test_a_retry_sends_only_what_is_not_delivered() -> None:
    receiver = WriteReceiver()
    many = batch(2000)
    async with receiver.serve() as url, exporter(url, max_batch_size_bytes=10_000) as (one, dropped):
        receiver.answers.extend([Response("", 503)] * 2)
        with pytest.raises(Retryable):
            await one.export(many)
        before = sum(request.counts[0] for request in receiver.requests)
        left = 2000 - len([values for values in stored(receiver).values() if 0.0 in values])
        await one.export(many)
    assert 0 < left < 2000
    assert sum(request.counts[0] for request in receiver.requests) - before == left
    assert len(stored(receiver)) == 2000
    assert dropped.counts == {}


@pytest.mark.parametrize(("status", "words"), [(401, "auth::authenticator"), (404, "api/v1/write"), (302, "redirects")])
async def test_a_refused_batch_is_kept_with_a_sentence_unless_the_user_says_otherwise(status: int, words: str) -> None:
    receiver = WriteReceiver()
    receiver.answers.extend([Response("", status, {"Location": "/login"} if status == 302 else None)] * 2)
    async with receiver.serve() as url:
        async with exporter(url) as (one, _):
            with pytest.raises(Correctable, match=words):
                await one.export(batch())
        async with exporter(url, retry_on_failure={"permanent_codes": [status]}) as (one, _):
            with pytest.raises(Permanent, match=words):
                await one.export(batch())


LOGIN = "<!DOCTYPE html><html><title>Log in</title></html>"
NO_CERTIFICATE = "<html><head><title>400 No required SSL certificate was sent</title></head></html>"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, LOGIN, 'the web page "Log in"; this path does not accept remote write'),
        (202, "<html>", "a web page; this path does not accept remote write"),
        (400, NO_CERTIFICATE, "No required SSL certificate.*set tls::cert_file and tls::key_file"),
        (400, "<html><title>Blocked</title></html>", 'the web page "Blocked"; this path does not accept remote write'),
        (400, "Client sent an HTTP request to an HTTPS server.", "write https:// in the endpoint"),
        (400, 'unsupported path requested: "/api/v1/wrte"', "this path does not accept remote write"),
        (400, "unsupported Content-Encoding: snappy", "this path does not accept remote write"),
    ],
)
@pytest.mark.parametrize("config", [{}, V1], ids=["2.0", "1.0"])
async def test_a_batch_is_kept_if_another_server_answers(
    config: dict[str, str], status: int, body: str, words: str
) -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response(body, status, media_type="text/html" if body.startswith("<") else "text/plain"))
    async with receiver.serve() as url, exporter(url, **config) as (one, dropped):
        with pytest.raises(Correctable, match=words) as kept:
            await one.export(batch())
        assert kept.value.code == str(status)
        await one.export(batch())
    assert len(stored(receiver)) == 10
    assert dropped.counts == {}


async def test_a_success_without_a_page_is_one_whatever_its_type() -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("OK", 200, media_type="text/html"))
    async with receiver.serve() as url, exporter(url, **V1) as (one, dropped):
        await one.export(batch())
    assert len(receiver.requests) == 1
    assert dropped.counts == {}


async def test_without_a_server_the_batch_is_kept_for_a_retry() -> None:
    async with exporter("http://127.0.0.1:1/api/v1/write") as (one, _):
        with pytest.raises(Retryable, match="nothing listens on this port"):
            await one.export(batch())


@pytest.mark.parametrize("config", [{}, {**V1, "send_metadata": True}], ids=["2.0", "1.0"])
async def test_requests_are_no_larger_than_configured_and_go_out_in_parallel(config: dict[str, str]) -> None:
    receiver = WriteReceiver(meeting=2)
    async with receiver.serve() as url, exporter(url, max_batch_size_bytes=20_000, **config) as (one, dropped):
        await one.export(batch(3000))
        await one.export(batch(3000, second=1))
    assert max(receiver.sizes) <= 20_000
    assert 1 < receiver.most_concurrent <= 5
    assert all(values == [0.0, 1.0] for values in stored(receiver).values())
    assert len(stored(receiver)) == 3000
    assert dropped.counts == {}


async def test_a_series_with_many_samples_is_sent_in_several_requests_in_order() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url, max_batch_size_bytes=10_000) as (one, dropped):
        await one.export(batch(3, samples=500))
    assert max(receiver.sizes) <= 10_000
    assert all(values == [*range(500)] for values in stored(receiver).values())
    assert dropped.counts == {}


async def test_the_table_of_symbols_does_not_grow_with_series_that_ended() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url) as (one, _):
        for second in range(20):
            point = number(1.0, {"job": f"job-{second}" * 20}, time=NOW + second * SECOND)
            await one.export(Batch(data(gauge("g", point))))
    assert max(receiver.sizes) < 4 * receiver.sizes[0]


async def test_many_kinds_of_series_keep_their_labels_over_many_requests() -> None:
    receiver = WriteReceiver()
    async with receiver.serve() as url, exporter(url) as (one, _):
        for second in range(30):
            at = NOW + second * SECOND
            points = [number(float(second), {"gpu": str(i)}, time=at) for i in range(second % 7 + 1)]
            await one.export(Batch(data(gauge("g", *points), histogram("h", [1.0], [second, 1], 1.0, time=at))))
    assert stored(receiver)["0"] == [float(second) for second in range(30)]
    assert stored(receiver)["6"] == [6.0, 13.0, 20.0, 27.0]
    [buckets] = [one for labels, one in receiver.named("h_seconds_bucket").items() if dict(labels)["le"] == "1.0"]
    assert [value for _, value in buckets] == [*range(30)]
    assert {name_of(labels) for labels in receiver.samples} == {
        *("g", "h_seconds_bucket", "h_seconds_count", "h_seconds_sum")
    }


@pytest.mark.parametrize("value", ["9" * 5000, "\u00b2".encode().decode("latin-1"), "-1", ""])
async def test_nonsense_in_the_number_of_written_samples_counts_as_none(value: str) -> None:
    receiver = WriteReceiver()
    receiver.answers.append(Response("", 200, {"X-Prometheus-Remote-Write-Samples-Written": value}))
    async with receiver.serve() as url, exporter(url) as (one, dropped):
        await one.export(batch())
    assert sum(dropped.counts.values()) == 10


START = 1_760_000_000 * SECOND
GPUS = 5


def reading(second: int) -> bytes:
    """A request of OTLP with one value of each GPU."""
    points = (number(float(second), {"gpu": str(gpu)}, time=START + second * SECOND) for gpu in range(GPUS))
    return data(gauge("g", *points)).SerializeToString()


async def test_every_sample_arrives_in_order_after_kill_9_and_an_outage(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port, receiver = unused_tcp_port_factory(), WriteReceiver()
    async with receiver.serve() as url:
        settings = {
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {
                "prometheus_remote_write": {
                    "endpoint": url,
                    "sending_queue": {"storage": "file_storage"},
                    "retry_on_failure": {"max_interval": "100ms"},
                }
            },
            "extensions": {"file_storage": {"directory": str(tmp_path / "queue"), "create_directory": True}},
            "service": {
                "extensions": ["file_storage"],
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["prometheus_remote_write"]}},
            },
        }
        for first in range(0, 40, 10):
            async with collector(tmp_path / "collector", settings, port) as running:
                receiver.answers.extend([Response("down", 503)] * 3)
                await send(port, *map(reading, range(first, first + 10)))
                if first < 20:  # some samples may be delivered at this moment, and some are only on the disk
                    running.kill()
                    continue
                await until(lambda: _is_complete(receiver, first + 10))  # noqa: B023  # called at once
        assert _is_complete(receiver, 40)
        assert len(receiver.named("g")) == GPUS


def _is_complete(receiver: WriteReceiver, seconds: int) -> bool:
    """Whether each series has its value of every second, in order."""
    found = [[value for _, value in samples] for samples in receiver.named("g").values()]
    return bool(found) and all(values == [float(second) for second in range(seconds)] for values in found)
