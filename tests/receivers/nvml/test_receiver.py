"""The running receiver, with GPUs that hang, get lost and return, and drivers that fail or are updated."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.nvml import NvmlReceiver
from otel_zernel_receivers.nvml.config import NvmlConfig
from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.reading import values

Boot = Callable[[str], Driver]
QUICK = {
    "collection_interval": "50ms",
    "initial_delay": 0,
    "timeout": "300ms",
    "rediscover_interval": "20ms",
    "metrics": {"zernel.nvml.query.duration": {"enabled": False}, "zernel.gpu.xid.last": {"enabled": True}},
}


class Running:
    """A running receiver and its batches, metrics and health."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.reader = InMemoryMetricReader()
        meter = MeterProvider([self.reader]).get_meter("test")
        self.context = make_context(id_="nvml", clock=SystemClock(), meter=meter)
        self.downstream = Downstream()
        self.receiver = NvmlReceiver(NvmlConfig.model_validate({**QUICK, **options}), self.context)

    @property
    def batches(self) -> list[Batch]:
        return self.downstream.batches

    @property
    def timeouts(self) -> dict[str, int]:
        """The number of timeouts of each GPU, by uuid."""
        return {str(attributes["hw.id"]): count for attributes, count in self._counted("zernel.nvml.timeouts")}

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """The number of failures, by query and error."""
        counted = self._counted("zernel.nvml.query.errors")
        return {(str(key["zernel.nvml.query"]), str(key["error.type"])): count for key, count in counted}

    def _counted(self, name: str) -> Iterator[tuple[dict[str, Any], int]]:
        data = self.reader.get_metrics_data()
        metrics = [metric for one in data.resource_metrics for metric in one.scope_metrics[0].metrics] if data else []
        for point in (point for metric in metrics if metric.name == name for point in metric.data.data_points):
            yield dict(point.attributes or {}), int(point.value)  # type: ignore[union-attr]  # a sum's

    @property
    def problem(self) -> str:
        return self.context.health.problems.get("receivers::nvml", "")

    async def scraped(self, uuid: str) -> None:
        """Waits for the next scrape of the GPU."""
        before = len(self.batches)
        await until(lambda: any(_of(uuid, batch) for batch in self.batches[before:]))

    def newest(self, metric: str, uuid: str = "") -> dict[str, float]:
        """The newest values of the metric, for one GPU or for any."""
        found = (values(batch, metric) for batch in reversed(self.batches) if _of(uuid, batch))
        return next((one for one in found if one), {})


def _of(text: str, batch: Batch) -> bool:
    """Whether the batch contains the text: a GPU's uuid, or a driver's version."""
    return text.encode() in batch.metrics_bytes()


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Running]:
    one = Running(options)
    task = asyncio.create_task(one.receiver.run(one.downstream))
    try:
        yield one
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        async with asyncio.timeout(1):
            with pytest.raises(asyncio.CancelledError):
                await task


def gpu(index: int) -> str:
    """The uuid of a board in the scenario `h100x8`."""
    return f"GPU-5fd4f087-86f3-7a43-b711-00000000000{index}"


async def test_every_gpu_has_a_batch_of_its_own(driver: Boot) -> None:
    driver("h100x8")
    async with running() as nvml:
        for index in range(8):
            await nvml.scraped(gpu(index))
        await until(lambda: nvml.problem == "")


async def test_a_hung_gpu_affects_no_other_gpu_and_is_counted_until_it_answers_again(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(5))
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: nvml.problem == f"GPU 5 ({gpu(5)}) does not answer within 0.3 s")
        before = len(nvml.batches)
        for index in (0, 7):
            await nvml.scraped(gpu(index))
        assert not any(_of(gpu(5), batch) for batch in nvml.batches[before:])
        assert nvml.timeouts[gpu(5)] > 0
        controls.apply("gpu 5", "hang -")
        await nvml.scraped(gpu(5))
        await until(lambda: nvml.problem == "")


async def test_a_gpu_that_hangs_from_the_start_does_not_block_the_others(driver: Boot) -> None:
    controls = driver("h100x8")
    controls.apply("gpu 4", "hang = 1")
    async with running() as nvml:
        await nvml.scraped(gpu(7))
        await until(lambda: nvml.problem == "GPU 4 does not answer within 0.3 s")
        controls.apply("gpu 4", "hang -")
        await nvml.scraped(gpu(4))
        await until(lambda: nvml.problem == "")


async def test_while_one_gpu_hangs_another_is_lost_and_found_again(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(2))
        await nvml.scraped(gpu(5))  # its uuid is known from here on
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: f"GPU 5 ({gpu(5)})" in nvml.problem)
        controls.apply("gpu 2", "lost = !15")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=failed") == 1)
        assert f"GPU 2 ({gpu(2)}) has fallen off the bus" in nvml.problem
        controls.apply("gpu 2", "lost -")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=ok") == 1)
        await until(lambda: nvml.problem == f"GPU 5 ({gpu(5)}) does not answer within 0.3 s")


async def test_while_one_gpu_hangs_mig_instances_of_another_are_found(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(1))
        await nvml.scraped(gpu(5))  # its uuid is known from here on
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: f"GPU 5 ({gpu(5)})" in nvml.problem)
        uuid = "MIG-dddddddd-0000-0000-0000-000000000000"
        instance = ("mig 0", f"UUID = {uuid}", "MemoryInfo_v2 = 5100273664 0 5100273664 0")
        controls.apply("gpu 1", "MigMode = 1 1", "MaxMigDeviceCount = 7", *instance)
        await nvml.scraped(uuid)


async def test_a_gpu_that_hung_from_the_start_reports_xids_while_another_hangs(driver: Boot) -> None:
    controls = driver("h100x8")
    controls.apply("gpu 4-5", "hang = 1")
    async with running() as nvml:
        await until(lambda: "GPU 4 does not answer" in nvml.problem)
        controls.apply("gpu 4", "hang -")
        await nvml.scraped(gpu(4))

        def counted() -> dict[str, float]:
            controls.apply("gpu 4", "xid = 31")  # an XID before the subscription is lost
            return nvml.newest("zernel.gpu.xid.errors", gpu(4))

        await until(counted)
        assert set(counted()) == {"zernel.gpu.xid.code=31"}
        assert "GPU 5 does not answer" in nvml.problem


async def test_a_gpu_that_is_lost_from_the_start_is_shown_in_health(driver: Boot) -> None:
    controls = driver("h100x8")
    controls.apply("gpu 6", "lost = !15")
    async with running() as nvml:
        await nvml.scraped(gpu(0))
        await until(lambda: nvml.problem == "GPU 6 has fallen off the bus or is otherwise inaccessible")


async def test_a_gpu_that_needs_the_driver_reopened_waits_while_another_hangs(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(2))
        await nvml.scraped(gpu(5))
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: f"GPU 5 ({gpu(5)}) does not answer" in nvml.problem)
        controls.apply("gpu 2", "lost = !15 until closed")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=failed") == 1)
        for _ in range(3):  # it is still sent, and the others are scraped
            await nvml.scraped(gpu(2))
            await nvml.scraped(gpu(0))
        assert f"GPU 2 ({gpu(2)}) has fallen off the bus" in nvml.problem
        assert controls.users == 1
        controls.apply("gpu 5", "hang -")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=ok") == 1)
        await nvml.scraped(gpu(5))
        await until(lambda: nvml.problem == "")


async def test_a_gpu_that_the_driver_lists_later_is_scraped_even_while_another_hangs(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(5))
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: f"GPU 5 ({gpu(5)}) does not answer" in nvml.problem)
        controls.apply("gpu 8", "UUID = GPU-new", "PowerUsage = 99000")
        await until(lambda: nvml.newest("hw.power", "GPU-new") == {"": 99})
        await nvml.scraped(gpu(0))


@pytest.mark.parametrize("code", [15, 999])
@pytest.mark.parametrize("function", ["Count", "EventSetCreate"])
async def test_a_driver_that_fails_in_part_when_opened_is_opened_again(driver: Boot, function: str, code: int) -> None:
    controls = driver("h200")
    controls.apply("driver", f"{function} = !{code}")
    async with running() as nvml:
        if function == "Count":
            await until(lambda: nvml.problem == "NVIDIA's driver lists no GPU")
        else:
            await nvml.scraped("GPU-515034b9")
        controls.apply("driver", f"{function} -")
        await nvml.scraped("GPU-515034b9")
        await until(lambda: nvml.problem == "")


async def test_a_driver_that_hangs_when_opened_is_reported_and_opened_once_it_answers(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("driver", "hang = 1")
    async with running() as nvml:
        await until(lambda: nvml.problem == "no GPUs: NVIDIA's driver does not answer")
        controls.apply("driver", "hang -")
        await nvml.scraped("GPU-515034b9")
        await until(lambda: nvml.problem == "")


async def test_a_driver_that_hangs_while_counting_gpus_does_not_block_the_scrapes(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(2))
        controls.apply("driver", "hang count = 1", "gpu 2", "lost = !15")
        for _ in range(10):
            await nvml.scraped(gpu(0))
        controls.apply("driver", "hang count -", "gpu 2", "lost -", "gpu 8", "UUID = GPU-new", "PowerUsage = 99000")
        await nvml.scraped("GPU-new")
        await nvml.scraped(gpu(2))


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
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(4))
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
        assert not _of("1654324149046", nvml.batches[-1])
        controls.apply("gpu 0", "Serial = 1654324149046")
        await nvml.scraped("1654324149046")


async def test_a_board_that_answers_no_query_is_reported_and_failed(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(4))
        controls.apply("gpu 4", "lost = !999")
        await until(lambda: nvml.problem == f"GPU 4 ({gpu(4)}) answers none of its queries")
        await until(lambda: nvml.newest("hw.status", gpu(4)).get("hw.state=failed") == 1)
        controls.apply("gpu 4", "lost -")
        await until(lambda: nvml.problem == "")
        assert nvml.newest("hw.status", gpu(4))["hw.state=ok"] == 1


async def test_a_driver_that_could_not_be_closed_is_closed_once_no_thread_hangs(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(5))
        controls.apply("gpu 5", "hang = 1")
        await until(lambda: f"GPU 5 ({gpu(5)})" in nvml.problem)
        controls.apply("driver", "broken = !1")
        await until(lambda: "no GPUs" in nvml.problem)
        controls.apply("driver", "broken -")
        await nvml.scraped(gpu(0))
        controls.apply("gpu 5", "hang -")
        await nvml.scraped(gpu(5))
        controls.apply("driver", "broken = !1")
        await until(lambda: "no GPUs" in nvml.problem)
        controls.apply("driver", "broken -")
        await nvml.scraped(gpu(5))
        await until(lambda: controls.users == 1)


async def test_a_lost_gpu_is_failed_and_is_found_again(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(2))
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
    controls = driver("h200")
    async with running() as nvml:
        await nvml.scraped("GPU-515034b9")
        controls.apply("driver", "broken = !1", "init = !18")
        await until(lambda: "of different versions" in nvml.problem)
        driver("h200").apply("driver", "DriverVersion = 590.11.01", "init -", "broken -")
        await until(lambda: _of("590.11.01", nvml.batches[-1]))
        await until(lambda: nvml.problem == "")


async def test_a_new_mig_instance_is_found(driver: Boot) -> None:
    controls = driver("a100-mig")
    async with running() as nvml:
        await nvml.scraped("MIG-cccccccc")
        uuid = "MIG-dddddddd-0000-0000-0000-000000000000"
        controls.apply("gpu 0", "mig 3", f"UUID = {uuid}", "MemoryInfo_v2 = 5100273664 0 5100273664 0")
        await nvml.scraped(uuid)


async def test_xids_are_counted_by_code_with_the_time_of_the_last(driver: Boot) -> None:
    controls = driver("h100x8")
    async with running() as nvml:
        await nvml.scraped(gpu(1))
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
    controls = driver("a100-mig")
    async with running() as nvml:
        await nvml.scraped("GPU-aaaaaaaa")
        controls.apply("gpu 0", "xid = 31 9 0", "xid = 31", "xid = 79")
        counted = {
            "zernel.gpu.xid.code=31 zernel.gpu.mig.gpu_instance=9": 1.0,
            "zernel.gpu.xid.code=31": 1.0,
            "zernel.gpu.xid.code=79": 1.0,
        }
        await until(lambda: nvml.newest("zernel.gpu.xid.errors", "GPU-aaaaaaaa") == counted)
        assert set(nvml.newest("zernel.gpu.xid.last_time", "GPU-aaaaaaaa")) == set(counted)


async def test_an_xid_of_a_board_without_mig_has_no_instance(driver: Boot) -> None:
    controls = driver("h200")
    async with running() as nvml:
        await nvml.scraped("GPU-515034b9")
        controls.apply("gpu 0", "xid = 31 0 0")
        await until(lambda: nvml.newest("zernel.gpu.xid.errors") == {"zernel.gpu.xid.code=31": 1.0})


async def test_a_fatal_xid_makes_the_gpu_failed(driver: Boot) -> None:
    controls = driver("h200")
    async with running() as nvml:
        await nvml.scraped("GPU-515034b9")
        controls.apply("gpu 0", "xid = 95")
        await until(lambda: nvml.newest("hw.status").get("hw.state=failed") == 1)


async def test_a_scrape_is_dropped_and_counted_while_downstream_is_full(driver: Boot) -> None:
    driver("h200")
    one = Running({})
    one.downstream.refuse = 10**9
    task = asyncio.create_task(one.receiver.run(one.downstream))
    drops = one.context.drop
    await until(lambda: drops.counts["refused"] > 100)  # type: ignore[attr-defined]  # a `Dropped` in tests
    task.cancel()
    await asyncio.wait([task])
