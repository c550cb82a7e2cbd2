"""An exporter that delivers nothing is in the health and in the log, once, and so is the end of the outage."""

import logging

import pytest

from otel_zernel.batch import ItemCount
from otel_zernel.engine.delivery.sending import OutageWatch
from otel_zernel.engine.pipelines.holding import HoldWatch
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.testing import FakeClock, make_context


def test_a_long_outage_is_a_line_a_minute_and_its_end_has_its_length(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    context = make_context("exporters", "sink", clock=clock)
    watch = OutageWatch(context, lambda: ItemCount(points=1204))
    with caplog.at_level(logging.INFO, "otel_zernel"):
        for _ in range(36):
            watch.failed(Retryable("Connection refused"), 5.0)
            clock.advance(5.0)
        assert "has delivered nothing for 3 m" in context.health.sentences(clock.monotonic())["exporters::sink"]
        watch.delivered()
        watch.delivered()
    assert caplog.messages == [
        "Export failed; retrying in 5.0 s: Connection refused",
        "Export failed; retrying in 5.0 s: Connection refused (12 times since the last line)",
        "Export failed; retrying in 5.0 s: Connection refused (12 times since the last line)",
        "The exporter works again after 3 m; 1,204 metric points are waiting.",
    ]
    assert context.health.sentences(clock.monotonic()) == {}


def test_another_reason_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = OutageWatch(make_context("exporters", "sink"), ItemCount)
    for reason in ("Connection refused", "503", "Connection refused"):
        watch.failed(Retryable(reason), 5.0)
    assert len(caplog.messages) == 2


def test_answers_with_one_code_are_one_line_which_says_how_long_the_data_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = make_context("exporters", "sink")
    watch = OutageWatch(context, lambda: ItemCount(points=1204), longest=300.0)
    for number in range(20):
        watch.failed(Correctable(f"401: token {number} is expired", "401"), 5.0)
    watch.failed(Correctable("404: no such path", "404"), 5.0)
    assert caplog.messages == [
        "The server does not take the data, which are kept for at most 5 m: 401: token 0 is expired",
        "The server does not take the data, which are kept for at most 5 m: 404: no such path",
    ]
    problem = context.health.sentences(context.clock.monotonic())["exporters::sink"]
    assert "404: no such path; the data are kept for at most 5 m; 1,204 metric points are waiting" in problem


def test_one_rejected_batch_among_others_is_no_outage_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context("exporters", "sink")
    watch = OutageWatch(context, ItemCount)
    with caplog.at_level(logging.INFO, "otel_zernel"):
        watch.given_up(Permanent("400"))
        assert context.health.outages
        watch.delivered()
    assert (caplog.messages, context.health.outages) == ([], {})


def test_a_receiver_that_is_held_back_is_logged_once_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    context = make_context("receivers", "source", clock=clock)
    watch = HoldWatch(context)
    with caplog.at_level(logging.INFO, "otel_zernel"):
        for _ in range(80):
            watch.held_back("sending queue is full: otlp")
            clock.advance(0.5)
        assert context.health.sentences(clock.monotonic()) == {
            "receivers::source": "held back for 40 s: sending queue is full: otlp"
        }
        watch.accepted()
    assert caplog.messages == [
        "The receiver is held back: sending queue is full: otlp",
        "The receiver's batches are accepted again after 40 s, in which 80 attempts were refused.",
    ]
    assert not watch.is_holding
