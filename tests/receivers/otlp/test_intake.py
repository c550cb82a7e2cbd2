"""Large requests take turns, so that other requests wait for one thread only."""

import asyncio
import threading
from contextlib import suppress
from functools import partial

import pytest

from benchmarks.peers.otlp import request_of
from otel_zernel.protobuf import encode_field
from otel_zernel.testing import Downstream, FakeClock, make_context
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_receivers.otlp.intake import OtlpIntake


def intake(clock: FakeClock | None = None) -> OtlpIntake:
    return OtlpIntake(Downstream(), make_context(clock=clock or FakeClock()), 1 << 20)


async def test_works_on_large_requests_run_one_after_the_other() -> None:
    taken, running, most = intake(), 0, 0

    def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.01)
        running -= 1
        return number

    assert await asyncio.gather(*(taken.in_turn(partial(work, one)) for one in range(6))) == list(range(6))
    assert most == 1


async def test_a_request_that_is_given_up_while_it_waits_is_not_worked_on() -> None:
    taken, begun, release = intake(), list[str](), threading.Event()

    def work(name: str) -> None:
        begun.append(name)
        release.wait(60)

    first = asyncio.create_task(taken.in_turn(lambda: work("first")))
    second = asyncio.create_task(taken.in_turn(lambda: work("second")))
    third = asyncio.create_task(taken.in_turn(lambda: work("third")))
    await asyncio.sleep(0)
    second.cancel()
    release.set()
    await first
    await third
    with pytest.raises(asyncio.CancelledError):
        await second
    assert begun == ["first", "third"]


async def test_an_error_lets_the_next_request_have_its_turn() -> None:
    taken = intake()
    with pytest.raises(ZeroDivisionError):
        await taken.in_turn(lambda: 1 // 0)
    assert await taken.in_turn(lambda: 1) == 1


EMPTY_POINTS = encode_field(1, encode_field(2, encode_field(2, encode_field(5, bytes([0x0A, 0]) * 50_000))))


@pytest.mark.parametrize("hostile", [bytes([0x0A, 0]) * 50_000, EMPTY_POINTS, bytes([0x0F]) * 50_000])
async def test_after_a_hostile_request_the_event_loop_counts_small_ones_only(hostile: bytes) -> None:
    clock = FakeClock()
    taken, large, small = intake(clock), request_of(300), request_of(10)
    assert taken.decode_at_once("metrics", large)
    with suppress(RequestFailure):
        taken.decode_at_once("metrics", hostile)
    assert taken.decode_at_once("metrics", large) is None
    assert taken.decode_at_once("metrics", small)
    assert (await taken.decode("metrics", large)).point_count == 300
    clock.advance(10)
    assert taken.decode_at_once("metrics", large)


def test_a_hostile_small_request_changes_nothing() -> None:
    taken = intake()
    assert taken.decode_at_once("metrics", bytes([0x0A, 0]) * 5_000) is None
    assert taken.decode_at_once("metrics", request_of(300))


def test_a_request_with_many_metrics_is_not_hostile() -> None:
    taken = intake()
    metric = encode_field(2, encode_field(1, b"a.metric.with.a.long.name"))
    assert taken.decode_at_once("metrics", encode_field(1, encode_field(2, metric * 3_000))) is None
    assert taken.decode_at_once("metrics", request_of(300))
