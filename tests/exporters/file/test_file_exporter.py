"""Files of the file exporter, read back."""

import json
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart, Retryable
from otel_zernel.otlp.json import parse_json
from otel_zernel.testing import StandingClock, make_context
from otel_zernel_exporters.file import FileExporter
from tests.otlp import data, gauge, logs, metrics_in, number, traces

MEBIBYTE = 2**20
INFO = SeverityNumber.SEVERITY_NUMBER_INFO


def file_exporter(path: Path, **settings: object) -> FileExporter:
    config = FileExporter.Config.model_validate({"path": str(path), **settings})
    return FileExporter(config, make_context("exporters", "file", clock=StandingClock(1_700_000_000_123_000_000)))


def metrics_batch(value: int = 1, name: str = "steps") -> Batch:
    return Batch(metrics=data(gauge(name, number(value, time=1_700_000_000_000_000_001))))


def spans_batch() -> Batch:
    return Batch(spans=traces(Span(name="step", trace_id=bytes(range(16)), span_id=b"\x01" * 8)))


def logs_batch() -> Batch:
    body = AnyValue(string_value="started")
    return Batch(logs=logs(LogRecord(trace_id=bytes(range(16)), severity_number=INFO, body=body)))


def values(path: Path) -> list[int]:
    """The value of the single point in each line."""
    parsed = [parse_json(MetricsData, line) for line in path.read_bytes().splitlines()]
    return [one.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].as_int for one in parsed]


def all_metrics(batch: Batch) -> list[Metric]:
    return metrics_in(batch.metrics)


def files(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(pattern))


@contextmanager
def room_for(more: int, path: Path) -> Iterator[None]:
    """The file can grow by `more` bytes. Then writes are incomplete and fail, like on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_batch_is_one_line_of_otlp_json(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    async with file_exporter(path) as exporter:
        await exporter.export(metrics_batch(7))
        await exporter.export(spans_batch())
    metrics, spans = map(json.loads, path.read_text().splitlines())
    point = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][0]
    assert point == {"timeUnixNano": "1700000000000000001", "asInt": "7"}
    span = spans["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert span == {"traceId": "000102030405060708090a0b0c0d0e0f", "spanId": "0101010101010101", "name": "step"}


async def test_each_signal_of_one_batch_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    async with file_exporter(path) as exporter:
        await exporter.export(
            Batch(metrics_batch().edit_metrics(), spans_batch().edit_spans(), logs_batch().edit_logs())
        )
        await exporter.export(Batch())
    signals = [set(json.loads(line)) for line in path.read_text().splitlines()]
    assert signals == [{"resourceMetrics"}, {"resourceSpans"}, {"resourceLogs"}]


async def test_each_signal_of_one_batch_is_a_record_of_unchanged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    every = Batch(metrics_batch().edit_metrics(), spans_batch().edit_spans(), logs_batch().edit_logs())
    async with file_exporter(path, format="proto") as exporter:
        await exporter.export(every)
    expected = [every.bytes_of("metrics"), every.bytes_of("traces"), every.bytes_of("logs")]
    assert path.read_bytes() == b"".join(struct.pack(">i", len(record)) + record for record in expected)


@pytest.mark.parametrize(("settings", "mode"), [({}, 0o640), ({"file_permissions": "0600"}, 0o600)])
async def test_a_new_file_has_the_configured_permissions_also_after_rotation(
    tmp_path: Path, settings: dict[str, Any], mode: int
) -> None:
    path = tmp_path / "out.json"
    async with file_exporter(path, rotation={"max_megabytes": 1}, **settings) as exporter:
        for value in range(2):
            await exporter.export(metrics_batch(value, "x" * MEBIBYTE))
    assert [file.stat().st_mode & 0o777 for file in files(tmp_path, "*")] == [mode, mode]


async def test_an_existing_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.touch(0o600)
    async with file_exporter(path, file_permissions="0644"):
        pass
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_large_batch_is_several_lines_with_every_point_once(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    batch = Batch.join(metrics_batch(value) for value in range(2500))
    async with file_exporter(path) as exporter:
        await exporter.export(batch)
    lines = [Batch(metrics=parse_json(MetricsData, line)) for line in path.read_bytes().splitlines()]
    assert [line.point_count for line in lines] == [1000, 1000, 500]
    found = [point.as_int for line in lines for metric in all_metrics(line) for point in metric.gauge.data_points]
    assert found == list(range(2500))


async def test_a_batch_can_be_read_as_soon_as_it_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    async with file_exporter(path) as exporter:
        await exporter.export(metrics_batch(3))
        assert values(path) == [3]


@pytest.mark.parametrize(("append", "kept"), [(False, [2]), (True, [1, 2])])
async def test_an_existing_file_is_emptied_unless_appended_to(tmp_path: Path, append: bool, kept: list[int]) -> None:
    path = tmp_path / "out.json"
    for value in (1, 2):
        async with file_exporter(path, append=append) as exporter:
            await exporter.export(metrics_batch(value))
    assert values(path) == kept


@pytest.mark.parametrize("settings", [{"format": "proto"}, {"compression": "zstd"}])
async def test_binary_records_are_prefixed_with_their_length(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "out.bin"
    batch = metrics_batch(5)
    async with file_exporter(path, **settings) as exporter:
        await exporter.export(batch)
        await exporter.export(batch)
    data = path.read_bytes()
    (length,) = struct.unpack(">i", data[:4])
    record = data[4 : 4 + length]
    assert data == 2 * (data[:4] + record)
    if settings.get("compression") == "zstd":
        assert parse_json(MetricsData, zstandard.decompress(record)) == batch.metrics
    else:
        assert MetricsData.FromString(record) == batch.metrics


async def test_a_full_disk_leaves_no_incomplete_line_and_the_batch_can_be_retried(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    async with file_exporter(path) as exporter:
        await exporter.export(metrics_batch(1))
        with room_for(40, path), pytest.raises(Retryable, match=f"cannot write {path}: File too large"):
            await exporter.export(metrics_batch(2))
        assert values(path) == [1]
        await exporter.export(metrics_batch(2))
    assert values(path) == [1, 2]


async def test_a_file_is_rotated_before_it_exceeds_its_size_and_no_line_is_split(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    name = "x" * (MEBIBYTE // 3)
    async with file_exporter(path, rotation={"max_megabytes": 1}) as exporter:
        for value in range(8):
            await exporter.export(metrics_batch(value, name))
    written = [*files(tmp_path, "out-*.json"), path]
    assert written[0].name == "out-2023-11-14T22-13-20.123.json"
    assert [one.stat().st_size <= MEBIBYTE for one in written] == [True] * 4
    assert [values(one) for one in written] == [[0, 1], [2, 3], [4, 5], [6, 7]]


async def test_a_batch_larger_than_the_maximum_size_is_a_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    async with file_exporter(path, rotation={"max_megabytes": 1}) as exporter:
        for value, size in enumerate((1, 2 * MEBIBYTE, 1)):
            await exporter.export(metrics_batch(value, "x" * size))
    assert sorted(map(values, files(tmp_path, "*"))) == [[0], [1], [2]]


async def test_rotation_appends_to_the_file_of_the_previous_run(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for value in (1, 2):
        async with file_exporter(path, rotation={}) as exporter:
            await exporter.export(metrics_batch(value))
    assert values(path) == [1, 2]


async def test_old_files_beyond_max_backups_are_removed_and_other_files_never(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    stranger = tmp_path / "out-of-office.json"
    stranger.touch()
    rotation = {"max_megabytes": 1, "max_backups": 2}
    async with file_exporter(path, rotation=rotation) as exporter:
        for value in range(6):
            await exporter.export(metrics_batch(value, "x" * MEBIBYTE))
    kept = files(tmp_path, "out-2*.json")
    assert [values(one) for one in kept] == [[3], [4]]
    assert stranger.exists()


async def test_old_files_are_removed_after_max_days(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    ages = {"out-2023-11-12T22-13-00.000.json": False, "out-2023-11-12T22-14-00.000.json": True}
    for name in ages:
        (tmp_path / name).touch()
    async with file_exporter(path, rotation={"max_megabytes": 1, "max_days": 2}) as exporter:
        for value in range(2):
            await exporter.export(metrics_batch(value, "x" * MEBIBYTE))
    assert {name: (tmp_path / name).exists() for name in ages} == ages


async def test_a_missing_directory_is_an_error_that_names_the_path(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "out.json"
    with pytest.raises(CannotStart, match=f"^exporters::file::path: cannot write {path}: No such file or directory"):
        await file_exporter(path).__aenter__()


async def test_a_missing_directory_is_created_if_configured(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "out.json"
    async with file_exporter(path, create_directory=True, directory_permissions="0700") as exporter:
        await exporter.export(metrics_batch(1))
    assert values(path) == [1]
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_leaving_without_entering_is_safe_and_touches_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    await file_exporter(path).__aexit__(None, None, None)
    assert not path.exists()


async def test_a_full_device_is_retried() -> None:
    async with file_exporter(Path("/dev/full")) as exporter:
        with pytest.raises(Retryable, match="No space left on device"):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize("permissions", ["rwx", "0999", "1777", ""])
def test_invalid_permissions_are_an_error(permissions: str) -> None:
    with pytest.raises(ValidationError, match="directory_permissions"):
        FileExporter.Config.model_validate({"path": "out.json", "directory_permissions": permissions})
