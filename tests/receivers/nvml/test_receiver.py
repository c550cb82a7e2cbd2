"""The running receiver, with GPUs that hang, get lost and return, and drivers that fail or are updated."""

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from otel_zernel_exporters.prometheus.config import PrometheusConfig
from otel_zernel_libraries.prometheus import Format, Page
from tests.background import in_background
from tests.otlp import Row, rows_in
from tests.receivers.nvml.running import Boot, Running, gpu, gpu_5_hanging, mentions, running, scraping


async def test_every_gpu_has_a_batch_of_its_own(driver: Boot) -> None:
    driver("h100x8")
    async with running() as nvml:
        for index in range(8):
            await nvml.scraped(gpu(index))
        await until(lambda: nvml.problem == "")


async def test_a_gpu_that_is_lost_from_the_start_has_failed_by_its_index_until_it_is_found(driver: Boot) -> None:
    """So that the alert GpuFailed fires: `hw_status{hw_state="failed"} == 1`."""
    controls = driver("h100x8")
    controls.apply("gpu 6", "lost = !15")
    async with running() as nvml:
        await nvml.scraped(gpu(0))
        await until(lambda: nvml.problem == "GPU 6 has fallen off the bus or is otherwise inaccessible")
        await until(lambda: nvml.newest("hw.status", "GPU 6").get("hw.state=failed") == 1)
        batch = next(batch for batch in nvml.batches if mentions("GPU 6", batch))
        (resource,) = batch.metrics.resource_metrics
        attributes = {
            pair.key: pair.value.string_value or pair.value.int_value for pair in resource.resource.attributes
        }
        assert (attributes["hw.id"], attributes["zernel.gpu.index"]) == ("6", 6)
        page = Page(PrometheusConfig().options)
        page.update(batch.metrics, 0)
        lines = page.render(Format(), 0).decode().splitlines()
        (failed,) = (line for line in lines if line.startswith("hw_status{") and 'hw_state="failed"' in line)
        assert 'zernel_gpu_index="6"' in failed
        assert failed.endswith(" 1.0")
        controls.apply("gpu 6", "lost -")
        await nvml.scraped(gpu(6))
        await until(lambda: any(row.value is None for batch in nvml.batches for row in status_of_index(batch, "6")))
        assert nvml.newest("hw.status", gpu(6))["hw.state=ok"] == 1


def status_of_index(batch: Batch, id_: str) -> list[Row]:
    """The points of `hw.status` of a GPU without a uuid."""
    rows = rows_in(batch.metrics)
    return [row for row in rows if row.resource["hw.id"] == id_ and row.metric.name == "hw.status"]


async def test_a_gpu_without_memory_of_its_own_says_so_once(driver: Boot, caplog: pytest.LogCaptureFixture) -> None:
    controls = driver("h100x8")
    controls.apply("gpu 0", "MemoryInfo_v2 = !3", "MemoryInfo = !3")
    async with running() as nvml:
        await nvml.scraped(gpu(0))
        await until(lambda: any("has no memory metrics" in message for message in caplog.messages))
        await nvml.scraped(gpu(0))
        await nvml.scraped(gpu(1))
    assert sum("has no memory metrics" in message for message in caplog.messages) == 1


async def test_a_gpu_that_the_driver_lists_later_is_scraped_even_while_another_hangs(driver: Boot) -> None:
    async with gpu_5_hanging(driver) as (controls, nvml):
        controls.apply("gpu 8", "UUID = GPU-new", "PowerUsage = 99000")
        await until(lambda: nvml.newest("hw.power", "GPU-new") == {"": 99})
        await nvml.scraped(gpu(0))


@pytest.mark.parametrize("query", ["UUID", "HandleByIndex"])
async def test_a_gpu_without_a_uuid_is_reported_and_scraped_once_it_has_one(driver: Boot, query: str) -> None:
    controls = driver("h100x8")
    controls.apply("gpu 4", f"{query} = !999")
    async with running() as nvml:
        await until(lambda: nvml.problem == "GPU 4 does not return its uuid (unknown)")
        assert nvml.errors[(f"nvmlDeviceGet{query}", "unknown")] > 0
        controls.apply("gpu 4", "HandleByIndex -", f"UUID = {gpu(4)}")
        await nvml.scraped(gpu(4))
        await until(lambda: nvml.problem == "")


async def test_a_known_gpu_that_once_returns_no_uuid_is_still_scraped(driver: Boot) -> None:
    async with scraping(driver, "h100x8", gpu(4)) as (controls, nvml):
        controls.apply("gpu 4", "UUID = !999")
        await until(lambda: nvml.errors.get(("nvmlDeviceGetUUID", "unknown"), 0) > 1)
        await nvml.scraped(gpu(4))
        assert nvml.newest("hw.status", gpu(4))["hw.state=ok"] == 1
        assert nvml.problem == ""


async def test_an_attribute_that_a_board_returns_later_is_added(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", "Serial = !999")
    async with running() as nvml:
        await nvml.scraped("GPU-515034b9")
        assert not mentions("1654324149046", nvml.batches[-1])
        controls.apply("gpu 0", "Serial = 1654324149046")
        await nvml.scraped("1654324149046")


async def test_a_board_that_answers_no_query_is_reported_and_failed(driver: Boot) -> None:
    async with scraping(driver, "h100x8", gpu(4)) as (controls, nvml):
        controls.apply("gpu 4", "lost = !999")
        await until(lambda: nvml.problem == f"GPU 4 ({gpu(4)}) answers none of its queries")
        await until(lambda: nvml.newest("hw.status", gpu(4)).get("hw.state=failed") == 1)
        controls.apply("gpu 4", "lost -")
        await until(lambda: nvml.problem == "")
        assert nvml.newest("hw.status", gpu(4))["hw.state=ok"] == 1


async def test_a_lost_gpu_is_failed_and_is_found_again(driver: Boot) -> None:
    async with scraping(driver, "h100x8", gpu(2)) as (controls, nvml):
        controls.apply("gpu 2", "lost = !15")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=failed") == 1)
        await until(lambda: f"GPU 2 ({gpu(2)}) is missing" in nvml.problem)
        await nvml.scraped(gpu(3))
        controls.apply("gpu 2", "lost -")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=ok") == 1)
        await until(lambda: nvml.problem == "")


async def test_without_a_driver_it_waits_for_one(driver: Boot) -> None:
    controls = driver("none")
    controls.apply("driver", "init = !9")
    async with running() as nvml:
        await until(lambda: nvml.problem == "no GPUs: NVIDIA's driver is not loaded; load it with `modprobe nvidia`")
        controls.apply("driver", "init -")
        await until(lambda: nvml.problem == "NVIDIA's driver lists no GPU")
        driver("h200")
        await nvml.scraped("GPU-515034b9")
        await until(lambda: nvml.problem == "")


async def test_an_updated_driver_is_opened_again(driver: Boot) -> None:
    async with scraping(driver, "h200", "GPU-515034b9") as (controls, nvml):
        controls.apply("driver", "broken = !1", "init = !18")
        await until(lambda: "of different versions" in nvml.problem)
        driver("h200").apply("driver", "DriverVersion = 590.11.01", "init -", "broken -")
        await until(lambda: mentions("590.11.01", nvml.batches[-1]))
        await until(lambda: nvml.problem == "")


async def test_a_new_mig_instance_is_found(driver: Boot) -> None:
    async with scraping(driver, "a100-mig", "MIG-cccccccc") as (controls, nvml):
        uuid = "MIG-dddddddd-0000-0000-0000-000000000000"
        controls.apply("gpu 0", "mig 3", f"UUID = {uuid}", "MemoryInfo_v2 = 5100273664 0 5100273664 0")
        await nvml.scraped(uuid)


async def test_xids_are_counted_by_code_with_the_time_of_the_last(driver: Boot) -> None:
    async with scraping(driver, "h100x8", gpu(1)) as (controls, nvml):
        controls.apply("gpu 1", "xid = 31", "xid = 31", "xid = 13")
        counted = {"zernel.gpu.xid.code=31": 2.0, "zernel.gpu.xid.code=13": 1.0}
        await until(lambda: nvml.newest("zernel.gpu.xid.errors", gpu(1)) == counted)
        times = nvml.newest("zernel.gpu.xid.last_time", gpu(1))
        assert set(times) == set(counted)
        assert min(times.values()) > 1.7e9
        assert nvml.newest("zernel.gpu.xid.last", gpu(1)) == {"": 13.0}
        assert nvml.newest("hw.status", gpu(1))["hw.state=failed"] == 0
        assert nvml.newest("zernel.gpu.xid.errors", gpu(0)) == {}


async def test_an_xid_of_a_mig_instance_has_its_id(driver: Boot) -> None:
    async with scraping(driver, "a100-mig", "GPU-aaaaaaaa") as (controls, nvml):
        controls.apply("gpu 0", "xid = 31 9 0", "xid = 31", "xid = 79")
        counted = {
            "zernel.gpu.xid.code=31 zernel.gpu.mig.gpu_instance=9": 1.0,
            "zernel.gpu.xid.code=31": 1.0,
            "zernel.gpu.xid.code=79": 1.0,
        }
        await until(lambda: nvml.newest("zernel.gpu.xid.errors", "GPU-aaaaaaaa") == counted)
        assert set(nvml.newest("zernel.gpu.xid.last_time", "GPU-aaaaaaaa")) == set(counted)


async def test_an_xid_of_a_board_without_mig_has_no_instance(driver: Boot) -> None:
    async with scraping(driver, "h200", "GPU-515034b9") as (controls, nvml):
        controls.apply("gpu 0", "xid = 31 0 0")
        await until(lambda: nvml.newest("zernel.gpu.xid.errors") == {"zernel.gpu.xid.code=31": 1.0})


async def test_a_fatal_xid_makes_the_gpu_failed(driver: Boot) -> None:
    async with scraping(driver, "h200", "GPU-515034b9") as (controls, nvml):
        controls.apply("gpu 0", "xid = 95")
        await until(lambda: nvml.newest("hw.status").get("hw.state=failed") == 1)


async def test_a_scrape_is_dropped_and_counted_while_downstream_is_full(driver: Boot) -> None:
    driver("h200")
    nvml = Running({})
    nvml.downstream.refuse = 10**9
    drops = nvml.context.drop
    async with in_background(nvml.receiver.run(nvml.downstream)):
        await until(lambda: drops.counts["refused"] > 100)  # type: ignore[attr-defined]  # a `Dropped` in tests
