"""Damage costs only the records that it hits, and each is counted.

Texts that are not UTF-8 and a deep value in a file cost no other point.
"""

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard

from otel_zernel_receivers.otlp_json_file.records import MAX_RECORD
from tests.receivers.damaged_texts import damaged_json, damaged_metrics, every_point_arrives
from tests.receivers.otlp_json_file.replaying import FORMATS, Replay, gauge, values, write


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"nonsense", "not OTLP"),
        (b'{"resourceMetrics": 3}', "not OTLP"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}', "not OTLP"),
        (b'{"message": "hello"}', "not OTLP"),
        (b'{"resource_metrics": []}', "not OTLP"),
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


async def test_a_file_that_cannot_be_read_is_counted_and_the_others_are_replayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write(tmp_path / "b.json", gauge(1))
    (tmp_path / "a.json").write_bytes(gzip.compress(b"{}" * 1000)[:-9])
    replay = Replay()
    assert values(await replay.run(tmp_path / "*.json")) == [1]
    assert replay.dropped["unreadable file"] == 1
    assert any("cannot read" in message for message in caplog.messages)


@pytest.mark.parametrize("format_", ["json", "proto"])
async def test_every_point_arrives_everywhere(format_: str, tmp_path: Path, unused_tcp_port: int) -> None:
    path = tmp_path / "recorded"
    encoded = damaged_metrics()
    path.write_bytes(damaged_json() + b"\n" if format_ == "json" else struct.pack(">i", len(encoded)) + encoded)
    await every_point_arrives(tmp_path, "otlp_json_file", {"include": [str(path)]}, unused_tcp_port)
