"""A server that takes one signal and not another stops the other one; a server that takes none keeps its batches."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import grpc
import pytest
from starlette.responses import Response

from otel_zernel.batch import SIGNALS
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.errors import Correctable, Permanent, Refused, Retryable, Unwanted
from otel_zernel.testing import FakeClock, make_context, until
from tests.core.engine.wiring import INSTRUMENTS
from tests.core.parts import every_signal
from tests.exporters.otlp.exporting import (
    answering,
    answering_grpc,
    context,
    exporter_of,
    exporting,
    failing,
)
from tests.exporters.otlp.peers import GrpcSink, HttpSink, metrics_batch, spans_batch

NO_METRICS = "the server takes traces and logs, but no metrics"


async def test_a_signal_without_a_service_is_stopped_and_the_message_names_the_option() -> None:
    sink, own = answering_grpc(failing("UNIMPLEMENTED")), context("grpc")
    async with exporting(sink, own) as exporter:
        for _ in range(3):
            with pytest.raises(Permanent, match=rf"{NO_METRICS} \(UNIMPLEMENTED\); set signals: \[traces, logs\]$"):
                await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    assert [name.rpartition(".")[2] for name in sink.services] == [
        *("MetricsService", "TraceService", "LogsService"),
        "TraceService",
    ]
    assert NO_METRICS in own.health.problems[own.path]


async def test_a_stopped_signal_is_tried_again_after_an_hour() -> None:
    sink, clock = answering_grpc(failing("UNIMPLEMENTED")), FakeClock()
    own = make_context("exporters", "otlp_grpc", clock=clock)
    async with exporting(sink, own) as exporter:
        for _ in range(2):
            with pytest.raises(Unwanted):
                await exporter.export(metrics_batch())
        clock.advance(3601)
        sink.answers.append(failing("UNIMPLEMENTED"))
        for _ in range(2):
            with pytest.raises(Unwanted):
                await exporter.export(metrics_batch())
        clock.advance(3601)
        await exporter.export(metrics_batch())
        await exporter.export(metrics_batch())
    assert len(sink.requests) == 8  # two refused, each with two empty ones of other signals, and two taken
    assert own.path not in own.health.problems


async def test_a_failure_of_the_trial_leaves_the_trial_to_its_batch_until_the_server_answers() -> None:
    sink, clock = answering_grpc(failing("UNIMPLEMENTED")), FakeClock()
    own = make_context("exporters", "otlp_grpc", clock=clock)
    trial, second = metrics_batch(), metrics_batch()
    async with exporting(sink, own) as exporter:
        with pytest.raises(Unwanted):
            await exporter.export(metrics_batch())
        clock.advance(3601)
        sink.answers.extend(failing("UNAVAILABLE") for _ in range(2))
        for _ in range(2):
            with pytest.raises(Retryable):
                await exporter.export(trial)
            with pytest.raises(Unwanted):
                await exporter.export(second)
        await exporter.export(trial)
        await exporter.export(second)
    assert own.path not in own.health.problems


async def test_a_trial_whose_batch_is_given_up_is_left_to_the_next_batch() -> None:
    sink, clock = answering_grpc(failing("UNIMPLEMENTED")), FakeClock()
    own = make_context("exporters", "otlp_grpc", clock=clock)
    async with exporting(sink, own) as exporter:
        with pytest.raises(Unwanted):
            await exporter.export(metrics_batch())
        clock.advance(3601)
        sink.answers.append(failing("UNAVAILABLE"))
        with pytest.raises(Retryable):
            await exporter.export(metrics_batch())
        gc.collect()
        await exporter.export(metrics_batch())
    assert own.path not in own.health.problems


async def test_a_server_that_refuses_every_signal_for_a_while_stops_none() -> None:
    sink = answering(Response(""), *(Response("", 404) for _ in range(3)))
    own = context("http")
    async with exporting(sink, own) as exporter:
        await exporter.export(metrics_batch())
        with pytest.raises(Correctable, match="this path does not accept OTLP"):
            await exporter.export(spans_batch())
        await exporter.export(spans_batch())
    assert [request.path for request in sink.requests] == [
        *("/v1/metrics", "/v1/traces", "/v1/metrics", "/v1/logs"),
        "/v1/traces",
    ]
    assert own.path not in own.health.problems


async def test_the_advice_for_a_server_of_spans_alone_names_one_value(unused_tcp_port: int) -> None:
    own = context("grpc")
    async with (
        only_spans(GrpcSink(), unused_tcp_port),
        exporter_of("grpc", f"http://127.0.0.1:{unused_tcp_port}", own) as exporter,
    ):
        for batch in (metrics_batch(), every_signal().only({"logs"})):
            with pytest.raises(Unwanted, match=r"; set signals: \[traces\]$"):
                await exporter.export(batch)
    assert own.health.problems[own.path] == (
        "the server takes traces, but no metrics (UNIMPLEMENTED) and no logs (UNIMPLEMENTED); "
        "set signals: [traces]; these are dropped"
    )


async def test_a_stopped_signal_is_counted_and_neither_logged_again_nor_an_outage(
    caplog: pytest.LogCaptureFixture, unused_tcp_port: int
) -> None:
    sink, own = GrpcSink(), context("grpc")
    exporter = exporter_of("grpc", f"http://127.0.0.1:{unused_tcp_port}", own)
    async with only_spans(sink, unused_tcp_port), Delivery(exporter, INSTRUMENTS.exporter("otlp_grpc")) as delivery:
        for _ in range(5):
            delivery.queue.put(metrics_batch())
            delivery.queue.put(spans_batch())
        await delivery.drain()
    assert delivery.losses.keys() == {"unwanted_signal"}
    assert len(sink.requests) >= 6
    assert not own.health.outages
    assert [record.levelname for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == ["ERROR"]


async def test_a_server_without_any_service_may_be_the_wrong_endpoint_and_keeps_the_batch() -> None:
    async with exporting(answering_grpc(*[failing("UNIMPLEMENTED")] * 6)) as exporter:
        for _ in range(2):
            with pytest.raises(Correctable, match="correct the endpoint"):
                await exporter.export(metrics_batch())


async def test_a_signal_that_was_accepted_once_is_kept() -> None:
    sink = GrpcSink()
    async with exporting(sink) as exporter:
        await exporter.export(metrics_batch())
        sink.answers.append(failing("UNIMPLEMENTED"))
        with pytest.raises(Correctable):
            await exporter.export(metrics_batch())


async def test_the_option_signals_leaves_a_signal_out() -> None:
    async with exporting(GrpcSink(), signals=["traces"]) as exporter:
        assert exporter.signals == {"traces"}


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_path_that_is_missing_for_one_signal_only_stops_it(status: int) -> None:
    sink = answering(Response("", status))
    async with exporting(sink) as exporter:
        for _ in range(3):
            with pytest.raises(Permanent, match="set traces_endpoint and logs_endpoint in place of endpoint"):
                await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    assert [request.path for request in sink.requests] == ["/v1/metrics", "/v1/traces", "/v1/logs", "/v1/traces"]


async def test_a_wrong_url_of_one_signal_keeps_the_batch_although_another_server_takes_others() -> None:
    wrong, other = answering(*(Response("", 404) for _ in range(2))), HttpSink()
    own = context("http")
    async with (
        wrong.serve() as url,
        exporting(other, own, metrics_endpoint=f"{url}/otlp/v1/metrcs") as exporter,
    ):
        await exporter.export(spans_batch())
        for _ in range(2):
            with pytest.raises(Correctable, match="this path does not accept OTLP"):
                await exporter.export(metrics_batch())
        await exporter.export(metrics_batch())
    assert [request.path for request in other.requests] == ["/v1/traces"]
    assert own.path not in own.health.problems


async def test_a_path_that_is_missing_for_every_signal_keeps_the_batch() -> None:
    async with exporting(answering(*(Response("", 404) for _ in range(3)))) as exporter:
        with pytest.raises(Correctable, match="this path does not accept OTLP"):
            await exporter.export(metrics_batch())


@asynccontextmanager
async def only_spans(sink: GrpcSink, port: int) -> AsyncIterator[None]:
    """A backend with no other service, as Tempo is."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([sink._handler("trace.v1.TraceService")])
    server.add_insecure_port(f"localhost:{port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


async def test_metrics_that_nobody_wants_cost_no_span_of_an_outage(unused_tcp_port: int) -> None:
    config: dict[str, Any] = {
        "retry_on_failure": {"initial_interval": "50ms", "max_interval": "100ms", "max_elapsed_time": "0s"},
        "sending_queue": {"queue_size": 100},
    }
    sink, exporter = GrpcSink(), exporter_of("grpc", f"http://127.0.0.1:{unused_tcp_port}", **config)
    async with Delivery(exporter, INSTRUMENTS.exporter("otlp_grpc")) as delivery:
        pipelines = [Pipeline(name, [], [delivery], frozenset({name}), asyncio.Lock()) for name in SIGNALS[:2]]
        metrics, spans = (FanOut([pipeline], partial(INSTRUMENTS.receiver, "source")) for pipeline in pipelines)
        await spans(spans_batch())
        for number in range(500):
            with suppress(Refused):
                await metrics(metrics_batch())
            if number % 25 == 0:
                await spans(spans_batch())
            await asyncio.sleep(0)
        await until(lambda: delivery.problem)
        async with only_spans(sink, unused_tcp_port):
            await delivery.drain()
    assert len(sink.of("trace")) >= 21  # and the empty one that tries the signal
    assert delivery.losses.keys() == {"unwanted_signal"}
    assert not delivery.losses["unwanted_signal"].spans
