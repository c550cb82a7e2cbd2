"""The replay: its order, its pace, its times, and damaged files."""

import asyncio
import gzip
import io
import json
import struct
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel.reading.listing import list_files
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from otel_zernel_receivers.otlp_json_file.records import MAX_RECORD, RecordReader
from tests.core.reading.stored import MemoryStorage
from tests.receivers.otlp_json_file.replaying import (
    FORMATS,
    SECOND,
    START,
    Replay,
    gauge,
    log,
    receiver,
    span,
    values,
    write,
)


async def test_rotated_files_are_replayed_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    batches = [gauge(value) for value in range(6)]
    for batch in batches:
        batch.edit_metrics().resource_metrics[0].schema_url = "x" * 2**20
    await write(path, *batches, rotation={"max_megabytes": 1})
    (tmp_path / "out-other.txt").write_text("no telemetry")
    replay = Replay()
    assert values(await replay.run(tmp_path / "out*.json")) == list(range(6))
    assert len(list_files([str(tmp_path / "out-2*.json")]).files) == 5


async def test_excluded_files_are_not_read(tmp_path: Path) -> None:
    for value, name in enumerate(("a.json", "b.json", "c.json")):
        await write(tmp_path / name, gauge(value))
    assert values(await Replay().run(tmp_path / "*.json", exclude=[str(tmp_path / "[ab].json")])) == [2]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
async def test_a_file_that_is_compressed_as_a_whole_is_replayed(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "out.json"
    await write(path, gauge(1), gauge(2))
    path.write_bytes(compress(path.read_bytes()))
    assert values(await Replay().run(path)) == [1, 2]


@pytest.mark.parametrize(
    ("speed", "times"), [(0, [0, 0, 0, 0]), (1, [0, 10, 10, 30]), (10, [0, 1, 1, 3]), (0.5, [0, 20, 20, 60])]
)
async def test_records_come_at_the_recorded_pace_times_the_speed(
    tmp_path: Path, speed: float, times: list[float]
) -> None:
    path = tmp_path / "out.json"
    await write(path, *(gauge(0, START + after * SECOND) for after in (0, 10, 5, 30)))
    replay = Replay()
    await replay.run(path, speed=speed)
    assert replay.times == pytest.approx(times, abs=1e-6)


async def test_spans_and_log_records_have_their_pace_too(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await write(path, span(START), log(START + 7 * SECOND), span(START + 8 * SECOND))
    replay = Replay()
    await replay.run(path, speed=1)
    assert replay.times == pytest.approx([0, 5, 8], abs=1e-6), "a span counts by its end"


@pytest.mark.parametrize("speed", [1, 10])
async def test_times_are_shifted_to_the_replay_and_are_never_ahead_of_the_clock(tmp_path: Path, speed: int) -> None:
    path, clock = tmp_path / "out.json", FakeClock()
    began = clock.time_ns()
    await write(path, gauge(0, START), span(START + 10 * SECOND), log(START + 20 * SECOND))
    batches = await Replay(clock).run(path, speed=speed, timestamps="now")
    point = batches[0].metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    assert point.time_unix_nano == began
    assert point.start_time_unix_nano == began - SECOND // speed
    one = batches[1].spans.resource_spans[0].scope_spans[0].spans[0]
    times = [one.start_time_unix_nano, one.events[0].time_unix_nano, one.end_time_unix_nano]
    assert times == [began + after * SECOND // speed for after in (10, 11, 12)]
    record = batches[2].logs.resource_logs[0].scope_logs[0].log_records[0]
    assert record.observed_time_unix_nano == began + 20 * SECOND // speed
    assert record.time_unix_nano == 0, "a time that is not set stays so"
    assert clock.time_ns() == pytest.approx(began + 20 * SECOND // speed, abs=1e6)


async def test_recorded_times_stay_without_a_shift(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    batch = gauge(1)
    await write(path, batch, format="proto")
    (came,) = await Replay().run(path, speed=1)
    assert came.metrics_bytes() == batch.metrics_bytes()


class Enough(Exception):
    """Raised downstream, to stop a replay that never ends."""


async def test_a_loop_starts_again_with_new_times(tmp_path: Path) -> None:
    path, clock, times = tmp_path / "out.json", FakeClock(), []
    began = clock.time_ns()
    await write(path, gauge(0, START), gauge(1, START + 5 * SECOND))

    async def emit(batch: Batch, *, transport: str = "") -> None:
        metric = batch.metrics.resource_metrics[0].scope_metrics[0].metrics[0]
        times.append(metric.gauge.data_points[0].time_unix_nano)
        if len(times) == 4:
            raise Enough

    config: dict[str, Any] = {"include": [str(path)], "speed": 1, "timestamps": "now", "loop": True}
    with pytest.raises(Enough):
        await receiver(make_context(clock=clock), **config).run(emit)
    assert times == pytest.approx([began, began + 5 * SECOND, began + 5 * SECOND, began + 10 * SECOND], abs=1e6)


async def test_a_cancellation_ends_a_long_pause(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await write(path, gauge(0, START), gauge(1, START + 3600 * SECOND))
    downstream = Downstream()
    replay = receiver(make_context(clock=SystemClock()), include=[str(path)], speed=1)
    running = asyncio.create_task(replay.run(downstream))
    await until(lambda: downstream.batches)
    running.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_back_pressure_loses_nothing_and_a_rejection_does_not_end_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await write(path, *map(gauge, range(5)))
    replay = Replay(downstream=Downstream(refuse=7))
    assert values(await replay.run(path)) == list(range(5))

    offered = []

    async def reject(batch: Batch, *, transport: str = "") -> None:
        offered.append(batch.point_count)
        raise Rejected("no")

    await receiver(include=[str(path)]).run(reject)
    assert offered == [1] * 5


async def test_only_the_signals_of_the_pipelines_are_emitted(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await write(path, gauge(1), span(), log())
    replay = Replay()
    object.__setattr__(replay.context, "signals", frozenset({"logs"}))
    assert [batch.signals for batch in await replay.run(path)] == [("logs",)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"nonsense", "not OTLP"),
        (b'{"resourceMetrics": 3}', "not OTLP"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}', "not OTLP"),
        (b'{"message": "hello"}', "not OTLP"),
        (b'{"resourceMetrics": [', "not OTLP"),
        (b"[" * 100_000, "not OTLP"),
        (b" " * (MAX_RECORD + 2**20) + b"{}", "too long"),
    ],
)
async def test_a_damaged_line_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: bytes, reason: str
) -> None:
    path = tmp_path / "out.json"
    await write(path, gauge(1))
    start = path.stat().st_size
    path.write_bytes(path.read_bytes() + bad + b"\n\n" + path.read_bytes())
    replay = Replay()
    assert values(await replay.run(path)) == [1, 1]
    assert replay.dropped == {reason: 1}
    assert caplog.messages[0].startswith(f"Skipped a damaged record of {path} at byte {start}: ")


BOMB = zstandard.compress(b" " * (MAX_RECORD + 1))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\xff\xff", "not OTLP"),
        (b"\x28\xb5\x2f\xfdnonsense", "damaged compression"),
        (BOMB, "too long"),
        (zstandard.compress(b"nonsense"), "not OTLP"),
    ],
    ids=["bytes", "damaged zstd", "bomb", "no OTLP"],
)
async def test_a_damaged_message_costs_only_itself(tmp_path: Path, bad: bytes, reason: str) -> None:
    path = tmp_path / "out.bin"
    await write(path, gauge(1), format="proto")
    path.write_bytes(path.read_bytes() + struct.pack(">i", len(bad)) + bad + path.read_bytes())
    replay = Replay()
    assert values(await replay.run(path)) == [1, 1]
    assert replay.dropped == {reason: 1}


@pytest.mark.parametrize(
    ("end", "reason"), [(b"\0\0", "truncated"), (b"\0\0\0\x09half", "truncated"), (b"\xff" * 9, "damaged length")]
)
async def test_a_torn_end_is_counted(tmp_path: Path, end: bytes, reason: str) -> None:
    path = tmp_path / "out.bin"
    await write(path, gauge(1), format="proto")
    path.write_bytes(path.read_bytes() + end)
    replay = Replay()
    assert values(await replay.run(path)) == [1]
    assert replay.dropped == {reason: 1}


@pytest.mark.parametrize("settings", FORMATS[1:], ids=str)
@pytest.mark.parametrize("torn", [1, 3, 4, 5, 20, 40])
async def test_records_after_one_that_a_power_failure_tore_are_found(tmp_path: Path, settings: Any, torn: int) -> None:
    path = tmp_path / "out.bin"
    await write(path, *map(gauge, range(3)), **settings)
    whole = path.read_bytes()
    size = len(whole) // 3
    await write(path, *map(gauge, range(100, 200)), **settings)
    path.write_bytes(whole + path.read_bytes()[: min(torn, size - 1)] + path.read_bytes())
    replay = Replay()
    came = values(await replay.run(path))
    assert came[:3] == [0, 1, 2]
    assert came[-95:] == list(range(105, 200))
    assert 1 <= sum(replay.dropped.values()) <= 3


@given(st.binary(max_size=400), st.integers(1, 40))
def test_the_records_of_a_file_cover_its_bytes_once(content: bytes, piece: int) -> None:
    for form in ("lines", "frames"):
        stream = io.BytesIO(content)
        reader = RecordReader(lambda _, stream=stream: stream.read(piece), form=form)  # type: ignore[misc]
        records = [record for record in reader.records() if record]
        assert all(one.end <= other.start for one, other in pairwise(records))
        assert all(record.start < record.end <= len(content) for record in records)
        if form == "frames" and content:
            assert sum(record.end - record.start for record in records) == len(content)


async def test_a_file_that_cannot_be_read_is_counted_and_the_others_are_replayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write(tmp_path / "b.json", gauge(1))
    (tmp_path / "a.json").write_bytes(gzip.compress(b"{}" * 1000)[:-9])
    replay = Replay()
    assert values(await replay.run(tmp_path / "*.json")) == [1]
    assert replay.dropped["unreadable file"] == 1
    assert any("cannot read" in message for message in caplog.messages)


@pytest.mark.parametrize("end", [b"\n", b""], ids=["lines of 1 KiB", "one endless line"])
def test_reading_holds_one_record_in_memory(end: bytes) -> None:
    chunk = (b"x" * 1023 + (end or b"x")) * 256
    left = 400

    def read(_size: int) -> bytes:
        nonlocal left
        left -= 1
        return chunk if left >= 0 else b""

    tracemalloc.start()
    try:
        count = sum(1 for _ in RecordReader(read, form="lines").records())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == (400 * 256 if end else 1)
    assert peak < (2 * 2**20 if end else 3 * MAX_RECORD)


async def test_a_pattern_without_a_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"include: no file matches .*\*\.json"):
        await receiver(include=[str(tmp_path / "*.json")]).run(Downstream())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"include": []}, "include"),
        ({"follow": True, "loop": True}, "remove one"),
        ({"follow": True, "speed": 1}, "remove one"),
        ({"start_at": "end"}, "set follow: true"),
        ({"storage": "file_storage"}, "remove storage"),
        ({"timestamps": "now"}, "set speed: 1"),
        ({"speed": -1}, "speed"),
    ],
)
def test_options_that_contradict_each_other_are_errors(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        receiver(**{"include": ["a.json"], **config})


class Following:
    """A receiver that follows. Its downstream is shared by several runs."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.downstream, self.storage = Downstream(), MemoryStorage()
        self._config = {"include": [str(folder / "*")], "follow": True, **config}

    async def __aenter__(self) -> "Following":
        context = make_context(extensions={"file_storage": self.storage})
        self._running = asyncio.create_task(receiver(context, **self._config).run(self.downstream))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._running

    async def values(self, count: int) -> list[int]:
        await until(lambda: self.downstream.point_count >= count)
        return values(self.downstream.batches)


@pytest.mark.parametrize("settings", FORMATS, ids=str)
async def test_appended_records_are_emitted_and_a_restart_repeats_none(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1), **settings)
    following = Following(tmp_path, storage="file_storage")
    async with following:
        await following.values(1)
        await write(path, gauge(2), gauge(3), append=True, **settings)
        await following.values(3)
    await write(path, gauge(4), append=True, **settings)
    path.rename(tmp_path / "out-1")
    await write(path, gauge(5), **settings)
    async with following:
        assert sorted(await following.values(5)) == [1, 2, 3, 4, 5]


async def test_an_unfinished_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1))
    line = path.read_bytes()
    async with Following(tmp_path) as following:
        await following.values(1)
        with path.open("ab", buffering=0) as file:
            file.write(line[:20])
            await asyncio.sleep(0.02)
            file.write(line[20:])
        assert await following.values(2) == [1, 1]


async def test_start_at_end_reads_only_what_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1))
    async with Following(tmp_path, start_at="end") as following:
        await asyncio.sleep(0.05)
        await write(path, gauge(2), append=True)
        assert await following.values(1) == [2]


async def test_unknown_fields_and_snake_case_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    point = {"as_int": "7", "ofTheFuture": [1]}
    text = {"resource_metrics": [{"scope_metrics": [{"metrics": [{"name": "n", "gauge": {"data_points": [point]}}]}]}]}
    path.write_text(json.dumps(text, indent=None) + "\n")
    assert values(await Replay().run(path)) == [7]
