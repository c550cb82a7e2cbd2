"""A GPU has the newest readings of nvml, or of a file of DCGM."""

import pytest

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from tests.exporters.live.live_runs import PROCESS, RANK, START, LiveRun, phase_times, points

HOST: dict[str, AttributeValue] = {"host.name": "n1"}
GPU: dict[str, AttributeValue] = {"hw.id": "GPU-1"}


async def test_the_readings_of_nvml_are_fields() -> None:
    described: dict[str, AttributeValue] = {**HOST, **GPU, "hw.model": "NVIDIA H100", "zernel.gpu.index": 3}
    readings: list[tuple[str, dict[str, AttributeValue], float]] = [
        ("hw.gpu.utilization", {"hw.gpu.task": "general"}, 0.9),
        ("hw.gpu.utilization", {"hw.gpu.task": "encoder"}, 0.1),
        ("zernel.gpu.engine.active", {"zernel.gpu.engine": "sm"}, 0.8),
        ("zernel.gpu.engine.active", {"zernel.gpu.engine": "tensor"}, 0.7),
        ("zernel.gpu.engine.active", {"zernel.gpu.engine": "fp64"}, 0.2),
        ("zernel.gpu.engine.active", {"zernel.gpu.engine": "dram"}, 0.6),
        ("zernel.gpu.sm.occupancy", {}, 0.5),
        ("hw.gpu.memory.usage", {}, 2e9),
        ("hw.gpu.memory.limit", {}, 8e9),
        ("hw.power", {}, 650.0),
        ("zernel.gpu.power.limit", {}, 700.0),
        ("zernel.gpu.power.limit.enforced", {}, 600.0),
        ("hw.temperature", {"hw.sensor_location": "gpu"}, 70.0),
        ("hw.temperature", {"hw.sensor_location": "memory"}, 90.0),
        ("zernel.gpu.throttle.active", {"zernel.gpu.throttle.reason": "sw_power_cap"}, 1.0),
        ("zernel.gpu.throttle.active", {"zernel.gpu.throttle.reason": "hw_slowdown"}, 0.0),
        ("zernel.gpu.throttle.active", {"zernel.gpu.throttle.reason": "idle"}, 1.0),
        ("zernel.gpu.xid.errors", {"zernel.gpu.xid.code": 79}, 2.0),
    ]
    state = await LiveRun().add(*(points(name, [(labels, value)], described) for name, labels, value in readings))
    assert state["gpus"]["GPU-1"] == {
        "host": "n1",
        "index": 3,
        "name": "NVIDIA H100",
        "utilization": 0.9,
        "sm_active": 0.8,
        "sm_occupancy": 0.5,
        "tensor_active": 0.7,
        "dram_active": 0.6,
        "memory_used": 2e9,
        "memory_total": 8e9,
        "power": 650.0,
        "power_limit": 600.0,
        "temperature": 70.0,
        "throttled": ["sw_power_cap"],
        "xid": {"79": 2},
        "seen": START // 1_000_000,
    }


async def test_without_a_limit_the_memory_is_the_sum_of_its_parts() -> None:
    run = LiveRun()
    await run.add(
        points("hw.gpu.memory.usage", [(GPU, 3.0)], HOST), points("zernel.gpu.memory.free", [(GPU, 4.0)], HOST)
    )
    state = await run.add(points("zernel.gpu.memory.reserved", [(GPU, 1.0)], HOST))
    assert state["gpus"]["GPU-1"]["memory_total"] == 8.0


async def test_a_gpu_without_an_id_is_named_by_host_and_index() -> None:
    state = await LiveRun().add(points("hw.power", [({"zernel.gpu.index": 2}, 1.0)], HOST))
    assert [*state["gpus"]] == ["n1/2"]


async def test_the_end_of_a_series_removes_the_field_and_makes_no_gpu() -> None:
    run = LiveRun()
    assert (await run.add(points("hw.power", [(GPU, None)], HOST)))["gpus"] == {}
    await run.add(points("hw.power", [(GPU, 1.0)], HOST))
    state = await run.add(points("hw.power", [(GPU, None)], HOST))
    assert "power" not in state["gpus"]["GPU-1"]


async def test_a_gpu_without_data_leaves() -> None:
    run = LiveRun(expiration="10s")
    await run.add(points("hw.power", [(GPU, 1.0)], HOST))
    assert run.after(11)["gpus"] == {}


async def test_there_are_at_most_1024_gpus() -> None:
    run = LiveRun()
    await run.add(points("hw.power", [({"hw.id": f"GPU-{number}"}, 1.0) for number in range(1030)], HOST))
    assert len(run.exporter.snapshot()["gpus"]) == 1024
    assert run.dropped.counts["max_gpus"] == 6


async def test_a_process_is_on_the_gpu_that_has_its_memory() -> None:
    use = points("zernel.gpu.process.memory.usage", [({**GPU, "process.pid": PROCESS["process.pid"]}, 1e9)], HOST)
    state = await LiveRun().add(phase_times(gpu_compute=1.0), use)
    assert state["ranks"][RANK]["gpu"] == "GPU-1"


def xids(code: int, count: float | None, instance: int | None = None) -> Batch:
    labels: dict[str, AttributeValue] = {**GPU, "zernel.gpu.xid.code": code}
    return points(
        "zernel.gpu.xid.errors",
        [({**labels, **({} if instance is None else {"zernel.gpu.mig.gpu_instance": instance})}, count)],
        HOST,
    )


async def test_the_errors_of_all_gpu_instances_count_and_leave_with_their_series() -> None:
    run = LiveRun()
    state = await run.add(xids(79, 2.0), xids(13, 1.0, 1), xids(13, 3.0, 2))
    assert state["gpus"]["GPU-1"]["xid"] == {"13": 4, "79": 2}
    state = await run.add(xids(79, None), xids(13, None, 1))
    assert state["gpus"]["GPU-1"]["xid"] == {"13": 3}
    assert "xid" not in (await run.add(xids(13, None, 2)))["gpus"]["GPU-1"]


@pytest.mark.parametrize("ending", [0.0, None])
async def test_the_last_error_leaves_when_there_is_none_any_more(ending: float | None) -> None:
    run = LiveRun()
    last = "zernel.gpu.xid.last"
    state = await run.add(points(last, [(GPU, 79.0)], HOST), points(last, [(GPU, 31.0)], HOST))
    assert state["gpus"]["GPU-1"]["xid"] == {"31": 1, "79": 1}
    assert "xid" not in (await run.add(points(last, [(GPU, ending)], HOST)))["gpus"]["GPU-1"]


@pytest.mark.parametrize("text", ["GPU-1", "MIG-1/2"])
async def test_ids_may_have_any_characters(text: str) -> None:
    state = await LiveRun().add(points("hw.power", [({"hw.id": text}, 1.0)], HOST))
    assert [*state["gpus"]] == [text]
