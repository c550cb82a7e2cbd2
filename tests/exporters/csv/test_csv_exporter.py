"""The csv exporter writes dcgm-exporter's layout, and the csv receiver restores the same points."""

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart, Retryable
from otel_zernel.otlp.points import Descriptor, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel.testing import Downstream, Dropped, make_context
from otel_zernel_exporters.csv import CsvExporter
from otel_zernel_exporters.csv.exporter import CsvExporterConfig, _number, _scaled
from otel_zernel_libraries.arrays import KnownSeries
from otel_zernel_libraries.gpu_names.dcgm import COLUMNS, FIELDS
from otel_zernel_receivers.csv import CsvReceiver
from otel_zernel_receivers.csv.config import CsvReceiverConfig as ReceiverConfig
from otel_zernel_receivers.nvml.driver.events import Xid
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS
from otel_zernel_receivers.nvml.points.metrics import METRICS
from tests.exporters.file.test_file_exporter import room_for
from tests.receivers.nvml.driver import driver
from tests.receivers.nvml.reading import lines
from tests.receivers.nvml.running import Host

REAL = Path(__file__).parents[4] / "shared/data/dcgm_metrics_20250718_134233.csv"
GPU: dict[str, str | int] = {"host.name": "node-1", "hw.id": "GPU-1", "zernel.gpu.index": 0}


async def write(path: Path, *batches: Batch, append: bool = False) -> Dropped:
    """The number of dropped points by reason."""
    exporter = CsvExporter(CsvExporterConfig(path=path, append=append), make_context("exporters"))
    async with exporter:
        for batch in batches:
            await exporter.export(batch)
    dropped = exporter.context.drop
    assert isinstance(dropped, Dropped)
    return dropped


async def read(path: Path) -> Batch:
    """The batches that the csv receiver reads from a file."""
    receiver = CsvReceiver(ReceiverConfig(files=[str(path)], layout="dcgm"), make_context())
    downstream = Downstream()
    await receiver.run(downstream)
    assert not receiver.context.drop.counts  # type: ignore[attr-defined]  # a `Dropped` in tests
    return Batch.join(downstream.batches)


def batch_of(descriptor: Descriptor, value: float, about: dict[str, str | int], **attributes: str | int) -> Batch:
    series = Series(encode_resource(about), Scope("tests"), descriptor, encode_point_attributes(attributes))
    return KnownSeries([series]).batch(np.array([value]), 1_752_871_354_123_456_789)


def said(batch: Batch) -> set[str]:
    """Every point with its metric, resource and time, without what CSV does not have: fields of points, and attributes
    that the points of a GPU repeat from its resource."""
    return set(_said(batch))


def _said(batch: Batch) -> Iterator[str]:
    for of_gpu in batch.metrics.resource_metrics:
        about = sorted(str(attribute) for attribute in of_gpu.resource.attributes)
        for scope in of_gpu.scope_metrics:
            for metric in scope.metrics:
                if metric.HasField("histogram"):
                    continue
                data = metric.gauge if metric.HasField("gauge") else metric.sum
                kind = "gauge" if metric.HasField("gauge") else f"sum {metric.sum.is_monotonic}"
                for point in data.data_points:
                    own = (
                        attribute
                        for attribute in point.attributes
                        if attribute.key == "hw.id" or attribute.key not in OF_POINTS
                    )
                    attributes = sorted(str(one) for one in own)
                    where = f"{about} {metric.name} {metric.unit} {kind} {attributes}"
                    yield f"{where} {point.time_unix_nano} {point.as_double!r}"


@pytest.mark.parametrize("scenario", ["h200", "h100x8", "a100-mig", "geforce"])
async def test_metrics_of_nvml_are_restored(scenario: str, tmp_path: Path) -> None:
    driver().boot(scenario)
    host = Host({"metrics": {name: {"enabled": True} for name in METRICS}})
    with host.gpus() as gpus:
        host.xids.add(gpus[0].board.identity.uuid, Xid(31))
        given = Batch.join([gpu.scrape() for gpu in gpus])
    dropped = await write(tmp_path / "gpus.csv", given)
    assert said(await read(tmp_path / "gpus.csv")) == said(given)
    assert dropped.counts == {"no number": sum("histogram" in line for line in lines(given))}


async def test_a_recording_written_and_read_again_is_unchanged(tmp_path: Path) -> None:
    if not REAL.exists():
        pytest.skip("needs dcgm-exporter's recording in ../shared/data, which is not in the repository")
    recorded = await read(REAL)
    await write(tmp_path / "again.csv", recorded)
    assert said(await read(tmp_path / "again.csv")) == said(recorded)
    with REAL.open() as before, (tmp_path / "again.csv").open() as after:
        rows = [{tuple(row.values())[:11] for row in csv.DictReader(file)} for file in (before, after)]
    assert rows[0] == rows[1]


async def test_a_dcgm_field_is_written_in_its_unit(tmp_path: Path) -> None:
    usage = Descriptor("hw.gpu.memory.usage", "By", "up_down")
    await write(tmp_path / "one.csv", batch_of(usage, 3 * 2.0**20, GPU, **{"hw.id": "GPU-1"}))
    header, row = (tmp_path / "one.csv").read_text().splitlines()
    assert header == ",".join(COLUMNS)
    cells = dict(zip(COLUMNS, next(csv.reader([row])), strict=True))
    assert cells["metric_name"] == "DCGM_FI_DEV_FB_USED"
    assert cells["value"] == "3"
    assert cells["timestamp"] == "2025-07-18T20:42:34.123456789Z"
    assert (cells["uuid"], cells["gpu_id"], cells["Hostname"]) == ("GPU-1", "0", "node-1")


@given(st.sampled_from([0.01, 1.0, 1e-3, 1e3, 1e6, 2.0**20, 1024e3]), st.integers(0, 10**12))
def test_a_number_scales_back_to_itself(scale: float, raw: int) -> None:
    value = _scaled(float(raw), scale)
    assert _scaled(float(_number(value, scale)), scale) == value


@given(
    st.dictionaries(
        st.text('abc.-/ü"\\ ', min_size=1, max_size=8), st.text("a,=\"'\\\n{}ü ", min_size=1, max_size=12), max_size=4
    )
)
async def test_every_attribute_is_restored(attributes: dict[str, str]) -> None:
    own = Descriptor("zernel.test", "{thing}", "sum")
    batch = batch_of(own, 1.5, GPU, **{"hw.id": "GPU-1"}, **attributes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.csv"
        await write(path, batch)
        back = await read(path)
    (point,) = [p for r in back.metrics.resource_metrics for p in r.scope_metrics[0].metrics[0].sum.data_points]
    found = {attribute.key: attribute.value.string_value for attribute in point.attributes}
    assert found == {"hw.id": "GPU-1", **attributes}


async def test_points_without_a_gpu_are_dropped_and_counted(tmp_path: Path) -> None:
    batch = batch_of(Descriptor("system.cpu.time", "s", "sum"), 1.0, {"host.name": "node-1"})
    assert (await write(tmp_path / "none.csv", batch)).counts == {"no GPU": 1}


async def test_values_that_are_not_finite_numbers_are_dropped_and_counted(tmp_path: Path) -> None:
    batch = batch_of(Descriptor("hw.power", "W"), float("nan"), GPU)
    assert (await write(tmp_path / "nan.csv", batch)).counts == {"no number": 1}


async def test_an_existing_file_is_emptied_or_appended_to(tmp_path: Path) -> None:
    path, batch = tmp_path / "rows.csv", batch_of(Descriptor("hw.power", "W"), 1.0, GPU)
    await write(path, batch)
    await write(path, batch)
    assert len(path.read_text().splitlines()) == 2
    await write(path, batch, append=True)
    assert [line.startswith("timestamp") for line in path.read_text().splitlines()] == [True, False, False]


async def test_a_path_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    exporter = CsvExporter(CsvExporterConfig(path=tmp_path / "missing" / "rows.csv"), make_context("exporters"))
    with pytest.raises(CannotStart, match="cannot write"):
        async with exporter:
            pass


async def test_a_batch_that_a_full_disk_refuses_leaves_no_bytes_and_is_retried(tmp_path: Path) -> None:
    path, batch = tmp_path / "rows.csv", batch_of(Descriptor("hw.power", "W"), 1.0, GPU)
    exporter = CsvExporter(CsvExporterConfig(path=path), make_context("exporters"))
    async with exporter:
        before = path.read_bytes()
        with room_for(20, path), pytest.raises(Retryable, match="cannot write"):
            await exporter.export(batch)
        assert path.read_bytes() == before
        await exporter.export(batch)
    assert len(path.read_text().splitlines()) == 2


def test_every_field_can_be_written() -> None:
    assert all(measure.scale > 0 for measure in FIELDS.values())


async def test_only_metrics_are_accepted_and_a_new_file_is_not_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    await write(path)
    assert CsvExporter.signals == {"metrics"}
    assert path.stat().st_mode & 0o777 == 0o640
