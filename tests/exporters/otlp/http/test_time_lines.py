"""A server that wants the points of a resource in the order of time gets all of them."""

import logging

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from starlette.responses import Response

from otel_zernel.batch import Batch, points
from otel_zernel.errors import Permanent, Retryable
from otel_zernel_exporters.otlp.time_lines import TimeLines
from tests.exporters.otlp.exporting import answering, exporting
from tests.exporters.otlp.peers import HttpSink
from tests.otlp import SECOND, data, gauge, number, total

IDENTITY = {"service.name": "train", "service.instance.id": "node/812"}
TRAIN = {**IDENTITY, "host.name": "node"}
OUT_OF_ORDER = "out of order sample\nout of order sample\n"


def at(*seconds: int, resource: dict[str, str] = TRAIN) -> MetricsData:
    """A gauge with a point at each of these seconds."""
    return data(gauge("g", *(number(1.0, time=second * SECOND) for second in seconds)), resource=resource)


def sent(message: MetricsData) -> list[tuple[dict[str, str], list[int]]]:
    """The attributes of each resource, and the seconds of its points."""
    return [
        (
            {pair.key: pair.value.string_value for pair in resource.resource.attributes},
            [
                point.time_unix_nano // SECOND
                for scope in resource.scope_metrics
                for metric in scope.metrics
                for point in points(metric)
            ],
        )
        for resource in message.resource_metrics
    ]


def received(sink: HttpSink) -> list[list[tuple[dict[str, str], list[int]]]]:
    return [sent(MetricsData.FromString(request.body)) for request in sink.requests]


async def test_a_batch_that_is_refused_as_out_of_order_is_sent_with_its_identity_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = answering(Response(OUT_OF_ORDER, 400))
    with caplog.at_level(logging.INFO):
        async with exporting(sink, compression="none") as exporter:
            await exporter.export(Batch(at(1)))
            await exporter.export(Batch(at(2)))
            await exporter.export(Batch(at(1)))
    assert received(sink) == [[(TRAIN, [1])], [(IDENTITY, [1])], [(TRAIN, [2])], [(IDENTITY, [1])]]
    assert caplog.text.count("set out_of_order_time_window in the server") == 1


@pytest.mark.parametrize("words", ["duplicate sample for timestamp", "invalid metric name"])
async def test_another_refusal_is_no_reason_to_send_again(words: str) -> None:
    sink = answering(Response(words, 400))
    async with exporting(sink, compression="none") as exporter:
        with pytest.raises(Permanent, match=words):
            await exporter.export(Batch(at(1)))
    assert len(sink.requests) == 1


async def test_a_series_that_is_really_out_of_order_is_refused_once_more_and_changes_nothing() -> None:
    sink = answering(Response(OUT_OF_ORDER, 400), Response(OUT_OF_ORDER, 400))
    async with exporting(sink, compression="none") as exporter:
        with pytest.raises(Permanent, match="out of order sample"):
            await exporter.export(Batch(at(1)))
        await exporter.export(Batch(at(3)))
        await exporter.export(Batch(at(2)))
    assert received(sink)[2:] == [[(TRAIN, [3])], [(TRAIN, [2])]]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "the sample has been rejected because another one is newer (err-mimir-sample-out-of-order)"),
        (400, "user=7: err: out of order sample. timestamp=2026-01-01T00:00:00Z"),
        (409, "store locally for endpoint: conflict: out of order sample"),
    ],
    ids=["mimir", "cortex", "thanos"],
)
async def test_a_server_that_keeps_the_good_points_of_a_refused_request_gets_them_once(status: int, words: str) -> None:
    sink = answering(Response(words, status))
    async with exporting(sink, compression="none") as exporter:
        with pytest.raises(Permanent, match=r"out.of.order"):
            await exporter.export(Batch(at(1)))
        await exporter.export(Batch(at(3)))
        await exporter.export(Batch(at(2)))
    assert received(sink)[1:] == [[(TRAIN, [3])], [(TRAIN, [2])]]


@pytest.mark.parametrize("words", ["too old sample", "out of order sample"])
@pytest.mark.parametrize("status", [400, 422, 500, 503])
async def test_a_late_point_is_permanent_with_any_status_if_its_bare_request_is_refused_too(
    status: int, words: str
) -> None:
    sink = answering(Response(words, status), Response(words, status))
    async with exporting(sink, compression="none") as exporter:
        with pytest.raises(Permanent, match=words):
            await exporter.export(Batch(at(1)))
    assert received(sink) == [[(TRAIN, [1])], [(IDENTITY, [1])]]


async def test_a_service_that_is_out_of_order_is_no_late_point() -> None:
    async with exporting(answering(Response("this service is out of order", 503))) as exporter:
        with pytest.raises(Retryable, match="out of order"):
            await exporter.export(Batch(at(1)))


async def test_points_that_are_too_old_for_the_window_are_the_only_ones_without_attributes() -> None:
    sink = answering(Response("too old sample", 400))
    async with exporting(sink, compression="none") as exporter:
        await exporter.export(Batch(at(1)))
        await exporter.export(Batch(at(3)))
        await exporter.export(Batch(at(2)))
    assert received(sink) == [[(TRAIN, [1])], [(IDENTITY, [1])], [(TRAIN, [3])], [(TRAIN, [2])]]


async def test_late_points_of_a_batch_are_separated_in_order() -> None:
    lines = TimeLines()
    _, newest = await lines.arranged(Batch(at(5)))
    lines.sent(newest)
    message = at(4, 5, 6)
    message.MergeFrom(at(3, resource={**TRAIN, "host.name": "other"}))
    message.MergeFrom(at(5))
    message.resource_metrics[0].scope_metrics[0].metrics.append(total("s", number(1, time=4 * SECOND)))
    batch = Batch(message)
    arranged, newest = await lines.arranged(batch)
    assert sent(arranged.metrics) == [
        (IDENTITY, [4, 4]),
        (TRAIN, [5, 6]),
        ({**TRAIN, "host.name": "other"}, [3]),
        (IDENTITY, [5]),
    ]
    assert sent(batch.metrics) == sent(message)
    lines.sent(newest)
    arranged, _ = await lines.arranged(Batch(at(5)))
    assert sent(arranged.metrics) == [(IDENTITY, [5])]


async def test_the_order_of_the_attributes_makes_no_other_resource() -> None:
    lines = TimeLines()
    lines.sent((await lines.arranged(Batch(at(5))))[1])
    arranged, _ = await lines.arranged(Batch(at(4, resource=dict(reversed(TRAIN.items())))))
    assert sent(arranged.metrics) == [(IDENTITY, [4])]


@pytest.mark.parametrize("resource", [{}, {"host.name": "node"}, IDENTITY], ids=["empty", "nameless", "identity"])
async def test_a_resource_without_target_info_is_never_late(resource: dict[str, str]) -> None:
    lines = TimeLines()
    for second in (5, 4):
        arranged, newest = await lines.arranged(Batch(at(second, resource=resource)))
        lines.sent(newest)
        assert sent(arranged.metrics) == [(resource, [second])]
    assert sent((await lines.bare(Batch(at(1, resource=resource))))[0].metrics) == [(resource, [1])]
