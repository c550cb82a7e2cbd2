"""The replay: its order, its pace, its times, and damaged files.

Files that grow: appended records are emitted once, also over a restart.
"""

import asyncio
import gzip
import io
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from otel_zernel_libraries.files.listing import list_files
from otel_zernel_receivers.otlp_json_file.records import MAX_RECORD, RecordReader
from tests.background import in_background
from tests.core.engine.journals import MemoryStorage
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


@pytest.mark.parametrize("speed", [1, 10])
async def test_a_round_of_a_loop_begins_after_the_data_of_the_round_before(tmp_path: Path, speed: int) -> None:
    """A record has the data of the seconds before it."""
    path, clock = tmp_path / "out.json", FakeClock()
    rounds: list[list[int]] = []
    first = Batch.join([gauge(0, START), gauge(1, START + 3 * SECOND)])
    await write(path, first, gauge(2, START + 5 * SECOND))

    async def emit(batch: Batch, *, transport: str = "") -> None:
        of_resources = batch.metrics.resource_metrics
        points = [of_resource.scope_metrics[0].metrics[0].gauge.data_points[0] for of_resource in of_resources]
        rounds.append([point.time_unix_nano for point in points])
        assert max(rounds[-1]) <= clock.time_ns() + SECOND // 1000
        if len(rounds) == 4:
            raise Enough

    config: dict[str, Any] = {"include": [str(path)], "speed": speed, "timestamps": "now", "loop": True}
    with pytest.raises(Enough):
        await receiver(make_context(clock=clock), **config).run(emit)
    assert min(rounds[2]) >= max(rounds[1])
    assert max(rounds[2]) - min(rounds[2]) == pytest.approx(3 * SECOND / speed, abs=1e6)


async def test_a_cancellation_ends_a_long_pause(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await write(path, gauge(0, START), gauge(1, START + 3600 * SECOND))
    downstream = Downstream()
    replay = receiver(make_context(clock=SystemClock()), include=[str(path)], speed=1)
    async with asyncio.timeout(60), in_background(replay.run(downstream)):
        await until(lambda: downstream.batches)


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


LINES = st.lists(st.binary(max_size=40)).map(b"\n".join)
FRAMES = st.lists(st.binary(max_size=40)).map(
    lambda records: b"".join(len(record).to_bytes(4, "big") + record for record in records)
)


@given(st.binary(max_size=400) | LINES | FRAMES, st.integers(1, 40))
@example(b"{}\n[]\n1", 3)
def test_the_records_of_a_file_cover_its_bytes_once(content: bytes, piece: int) -> None:
    for form in ("lines", "frames"):
        stream = io.BytesIO(content)
        reader = RecordReader(lambda _, stream=stream: stream.read(piece), form=form)  # type: ignore[misc]
        records = [record for record in reader.records() if record]
        assert all(one.end <= other.start for one, other in pairwise(records))
        assert all(record.start < record.end <= len(content) for record in records)
        if form == "frames" and content:
            assert sum(record.end - record.start for record in records) == len(content)


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

    def running(self) -> AbstractAsyncContextManager[object]:
        context = make_context(extensions={"file_storage": self.storage})
        return in_background(receiver(context, **self._config).run(self.downstream))

    async def values(self, count: int) -> list[int]:
        await until(lambda: self.downstream.point_count >= count)
        return values(self.downstream.batches)


@pytest.mark.parametrize("settings", FORMATS, ids=str)
async def test_appended_records_are_emitted_and_a_restart_repeats_none(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1), **settings)
    following = Following(tmp_path, storage="file_storage")
    async with following.running():
        await following.values(1)
        await write(path, gauge(2), gauge(3), append=True, **settings)
        await following.values(3)
    await write(path, gauge(4), append=True, **settings)
    path.rename(tmp_path / "out-1")
    await write(path, gauge(5), **settings)
    async with following.running():
        assert sorted(await following.values(5)) == [1, 2, 3, 4, 5]


async def test_an_unfinished_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1))
    line = path.read_bytes()
    following = Following(tmp_path)
    async with following.running():
        await following.values(1)
        with path.open("ab", buffering=0) as file:
            file.write(line[:20])
            await asyncio.sleep(0.02)
            file.write(line[20:])
        assert await following.values(2) == [1, 1]


async def test_start_at_end_reads_only_what_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await write(path, gauge(1))
    following = Following(tmp_path, start_at="end")
    async with following.running():
        async with asyncio.timeout(60):
            while not following.downstream.point_count:  # until it has found the end of the file
                await write(path, gauge(2), append=True)
                await asyncio.sleep(0.05)
        assert set(await following.values(1)) == {2}
