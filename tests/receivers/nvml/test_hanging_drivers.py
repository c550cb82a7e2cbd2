"""A driver or a GPU that hangs affects nothing else, and is reported until it answers again."""

import pytest

from otel_zernel.testing import until
from tests.receivers.nvml.running import Boot, gpu, gpu_5_hanging, mentions, running, scraping


async def test_a_hung_gpu_affects_no_other_gpu_and_is_counted_until_it_answers_again(driver: Boot) -> None:
    async with gpu_5_hanging(driver) as (controls, nvml):
        assert nvml.problem == f"GPU 5 ({gpu(5)}) does not answer within 0.3 s"
        before = len(nvml.batches)
        for index in (0, 7):
            await nvml.scraped(gpu(index))
        assert not any(mentions(gpu(5), batch) for batch in nvml.batches[before:])
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
    async with gpu_5_hanging(driver, 2) as (controls, nvml):
        controls.apply("gpu 2", "lost = !15")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=failed") == 1)
        assert f"GPU 2 ({gpu(2)}) has fallen off the bus" in nvml.problem
        controls.apply("gpu 2", "lost -")
        await until(lambda: nvml.newest("hw.status", gpu(2)).get("hw.state=ok") == 1)
        await until(lambda: nvml.problem == f"GPU 5 ({gpu(5)}) does not answer within 0.3 s")


async def test_while_one_gpu_hangs_mig_instances_of_another_are_found(driver: Boot) -> None:
    async with gpu_5_hanging(driver, 1) as (controls, nvml):
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


async def test_a_gpu_that_needs_the_driver_reopened_waits_while_another_hangs(driver: Boot) -> None:
    async with gpu_5_hanging(driver, 2) as (controls, nvml):
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
    async with scraping(driver, "h100x8", gpu(2)) as (controls, nvml):
        controls.apply("driver", "hang count = 1", "gpu 2", "lost = !15")
        for _ in range(10):
            await nvml.scraped(gpu(0))
        controls.apply("driver", "hang count -", "gpu 2", "lost -", "gpu 8", "UUID = GPU-new", "PowerUsage = 99000")
        await nvml.scraped("GPU-new")
        await nvml.scraped(gpu(2))


async def test_a_driver_that_could_not_be_closed_is_closed_once_no_thread_hangs(driver: Boot) -> None:
    async with gpu_5_hanging(driver) as (controls, nvml):
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
